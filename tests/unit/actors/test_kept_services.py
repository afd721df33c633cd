"""Servers that a run keeps alive, over fake actors: who is told what, when one is started again, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

import actors.services
from actors.services import Services, ServiceSpec
from rlsys.errors import BadInput, RunFailed
from rlsys.system.calls import SERVICE_TOKEN
from tests.fakes.fake_ray import FakeRay
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import until


class Server:
    """What `ToolService` is to `Services`."""

    starts: list[tuple[str, str | None, str]]
    stopped: list[str]
    faults: dict[int, Exception]  # by the number of the start
    moves: bool
    die: Callable[[], None]

    def __init__(self, spec: ServiceSpec, secrets: Mapping[str, str]) -> None:
        self.spec, self.secrets, self.ill = spec, secrets, True

    def start(self, host: str | None, earlier: str) -> str:
        self.starts.append((self.spec.name, host, earlier))
        if len(self.starts) in self.faults:
            raise self.faults[len(self.starts)]
        self.ill = False
        return f"http://{self.spec.name}:{len(self.starts)}" if self.moves or not earlier else earlier

    def ping(self) -> None:
        if self.ill:
            raise ConnectionError("it hangs")

    def stop(self) -> None:
        self.stopped.append(self.spec.name)


def server() -> Any:
    return type("Server", (Server,), {"starts": [], "stopped": [], "faults": {}, "moves": False})


def kept(actor: Any, *names: str, **given: Any) -> Services:
    specs = [ServiceSpec(name=name, config=None, start=lambda *_: None, gpus=2) for name in names]  # type: ignore[arg-type,return-value]
    return Services(specs, env_vars={"A": "b"}, start_timeout_s=5, actor=actor, run="r", secrets={"KEY": "k"}, **given)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, fake_ray: FakeRay) -> None:
    monkeypatch.setattr(actors.services, "only_node", lambda: True)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_those_with_the_same_name_are_one_server_and_everybody_is_told(fake_ray: FakeRay) -> None:
    notices: list[dict[str, str]] = []
    actor = server()

    async def tell(addresses: Mapping[str, str]) -> None:
        notices.append(dict(addresses))

    async def scenario() -> None:
        services = kept(actor, "judge", "retriever", "judge")
        assert [need.gpus for need in services.needs(on_gpus=True)] == [2, 2]
        assert [(need.what, need.gpus) for need in services.needs(on_gpus=False)] == [("judge", 0), ("retriever", 0)]
        await services.start(tell=tell)
        assert notices == [services.addresses] and set(services.addresses) == {"judge", "retriever"}
        assert [host for _, host, _ in actor.starts] == ["127.0.0.1"] * 2
        await services.stop()

    run(scenario)
    assert sorted(actor.stopped) == ["judge", "retriever"] and all(handle.killed for handle in fake_ray.handles)
    assert set(fake_ray.options) == {"rlsys:r:judge", "rlsys:r:retriever"}
    (options, *_) = fake_ray.options.values()
    assert options["runtime_env"]["env_vars"]["A"] == "b" and "KEY" not in options["runtime_env"]["env_vars"]
    assert (options["num_cpus"], options["num_gpus"], options["max_restarts"]) == (1, 0, 0)
    assert options["max_concurrency"] > 2  # a ping and a stop do not wait for a start
    secrets = fake_ray.handles[0].actor.secrets
    assert secrets["KEY"] == "k" and secrets[SERVICE_TOKEN]


def test_a_server_takes_the_gpus_that_it_asks_for_where_there_are_any_and_no_other(fake_ray: FakeRay) -> None:
    async def scenario() -> None:
        services = kept(server(), "judge")
        plain = ServiceSpec(name="retriever", config=None, start=lambda *_: None)  # type: ignore[arg-type,return-value]
        services = Services(
            [*services.specs, plain], env_vars={"A": "b"}, start_timeout_s=5, actor=server(), run="r", on_gpus=True
        )
        assert [need.gpus for need in services.needs(on_gpus=True)] == [2, 0]
        await services.start(["here", "there"])
        await services.stop()

    run(scenario)
    judge, retriever = (fake_ray.options[f"rlsys:r:{name}"] for name in ("judge", "retriever"))
    assert (judge["num_gpus"], judge["scheduling_strategy"]) == (2, "here")
    assert (retriever["num_gpus"], retriever["scheduling_strategy"]) == (0, "there")
    seen = [options["runtime_env"]["env_vars"] for options in (judge, retriever)]
    assert "CUDA_VISIBLE_DEVICES" not in seen[0] and seen[1]["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("moves", [False, True])
def test_one_that_dies_or_hangs_is_started_again_and_only_a_new_address_is_told(fake_ray: FakeRay, moves: bool) -> None:
    notices: list[dict[str, str]] = []
    actor = server()
    actor.moves = moves

    async def tell(addresses: Mapping[str, str]) -> None:
        notices.append(dict(addresses))

    async def scenario() -> None:
        services = kept(actor, "judge", host="10.0.0.1")
        await services.start(tell=tell)
        fake_ray.handles[0].die()
        await until(lambda: len(actor.starts) == 2)
        await until(lambda: not fake_ray.handles[1].calls)
        fake_ray.handles[1].actor.ill = True
        await until(lambda: len(actor.starts) == 3)
        await until(lambda: len(notices) == (3 if moves else 1))
        assert services.restarts == {"judge": 2}
        assert actor.starts[1] == ("judge", "10.0.0.1", "http://judge:1")  # where it was before
        await services.stop()

    run(scenario)
    assert fake_ray.handles[1].killed


def test_one_that_cannot_start_is_an_error_of_the_run_and_bad_input_where_it_says_so(fake_ray: FakeRay) -> None:
    for fault, kind in ((OSError("no corpus"), RunFailed), (BadInput("no corpus"), BadInput)):
        actor = server()
        actor.faults[1] = fault

        async def scenario(actor: Any = actor, kind: Any = kind) -> None:
            with pytest.raises(kind, match="judge could not start: .*no corpus"):
                await kept(actor, "judge").start()

        run(scenario)


def test_one_that_does_not_come_back_is_tried_again_ever_more_patiently(
    fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def no_sleep(seconds: float, *_: Any) -> None:
        if seconds >= 1:
            slept.append(seconds)
        await sleep(0)

    actor = server()
    actor.faults = {number: OSError("no room") for number in range(2, 10)}

    async def scenario() -> None:
        services = kept(actor, "judge")
        await services.start()
        with monkeypatch.context() as patched:
            patched.setattr(actors.services.asyncio, "sleep", no_sleep)
            fake_ray.handles[0].die()
            while len(actor.starts) < 10:
                await sleep(0)
        await services.stop()

    run(scenario)
    assert slept[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert actors.services.HEALTH_DEADLINE_S * 2 == kept(actor).ping_timeout_s == 20.0
