"""How a version comes to every node, over fake carriers: who fetches what from whom, and what a death costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import actors.carriers
from actors.carriers import CarrierOptions, Carriers, Superseded
from actors.mover import SourceFailed
from rlsys.channels.base import Part, Published
from rlsys.channels.shm import SharedMemory
from rlsys.errors import RunFailed
from tests.fake_ray import FakeRay
from tests.fake_ray import fake_ray as fake_ray
from tests.fake_workers import until


@dataclass
class Disks:
    """What lies on the nodes, and what the test wants to go wrong there."""

    parts: dict[str, set[tuple[int, int]]] = field(default_factory=dict)  # by node: versions and numbers
    starts: list[tuple[str, int | None]] = field(default_factory=list)
    fetched: list[tuple[str, int, str]] = field(default_factory=list)  # to, part, from
    asked: list[tuple[str, str]] = field(default_factory=list)  # node and method
    tokens: set[str] = field(default_factory=set)
    hosts: set[Any] = field(default_factory=set)
    kept: list[tuple[str, int]] = field(default_factory=list)
    fetching: Counter[str] = field(default_factory=Counter)
    most: int = 0
    start: Callable[[Any], Awaitable[None]] | None = None
    fetch: Callable[[Any, int, str], Awaitable[None]] | None = None


class FakeCarrier:
    disks: Disks
    die: Callable[[], None]

    def __init__(self, channel: SharedMemory, host: str | None) -> None:
        self.node = channel.node
        self.disks.hosts.add(host)

    async def start(self, kept: int | None) -> None:
        self.disks.starts.append((self.node, kept))
        if self.disks.start is not None:
            await self.disks.start(self)

    async def stand(self) -> None:
        await asyncio.Event().wait()

    def serve(self, token: str) -> str:
        self.disks.asked.append((self.node, "serve"))
        self.disks.tokens.add(token)
        return f"grpc://{self.node}"

    def found(self, published: Published) -> list[int]:
        own = {number for number, part in enumerate(published.parts) if part.node == self.node}
        brought = {number for version, number in self.disks.parts.get(self.node, ()) if version == published.version}
        return sorted(own | brought)

    async def fetch(self, published: Published, number: int, address: str, timeout_s: float) -> None:
        assert timeout_s == 7.0
        disks = self.disks
        disks.fetching[self.node] += 1
        disks.most = max(disks.most, *disks.fetching.values())
        try:
            await asyncio.sleep(0)
            if disks.fetch is not None:
                await disks.fetch(self, number, address.removeprefix("grpc://"))
            disks.fetched.append((self.node, number, address.removeprefix("grpc://")))
            disks.parts.setdefault(self.node, set()).add((published.version, number))
        finally:
            disks.fetching[self.node] -= 1

    def keep(self, version: int) -> None:
        self.disks.kept.append((self.node, version))

    def stop(self) -> None:
        self.disks.asked.append((self.node, "stop"))


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, fake_ray: FakeRay) -> Iterator[Disks]:
    made = Disks()
    monkeypatch.setattr(actors.carriers, "ray", fake_ray)
    strategy = "NodeAffinitySchedulingStrategy"  # Ray's own takes names of Ray's nodes alone
    monkeypatch.setattr(actors.carriers, strategy, lambda node, *, soft: (node, soft))
    monkeypatch.setattr(actors.carriers, "Carrier", type("ScriptedCarrier", (FakeCarrier,), {"disks": made}))
    yield made


def sent(version: int, *owners: str, digest: int | None = 1) -> Published:
    parts = [Part(name=f"p{number}", bytes=10, digest=digest, node=owner) for number, owner in enumerate(owners)]
    return Published(channel="", version=version, places=tuple(part.name for part in parts), parts=tuple(parts))


def run(scenario: Callable[[Carriers], Awaitable[None]], **given: Any) -> None:
    async def whole() -> None:
        options = CarrierOptions(env_vars={"A": "b"}, start_timeout_s=5, fetch_timeout_s=7.0, run="r", host="ib0")
        carriers = Carriers(SharedMemory(Path("/here"), ""), options)
        try:
            await scenario(carriers)
        finally:
            await carriers.stop()

    asyncio.run(asyncio.wait_for(whole(), 10))


def handle(carriers: Carriers, node: str) -> Any:
    return carriers._nodes[node].handle


def test_every_node_gets_what_it_lacks_once_and_old_versions_go(disks: Disks, fake_ray: FakeRay) -> None:
    async def scenario(carriers: Carriers) -> None:
        assert carriers.moved() == (0, 0.0)
        await carriers.ensure(["a", "a"])
        assert not carriers.sending().digests  # one node: nobody would look at them
        await carriers.ensure(["b", "c"])
        assert carriers.sending().digests and sorted(disks.starts) == [("a", None), ("b", None), ("c", None)]
        version = sent(4, *"aaaaaaaaaaaabbbbbbbbbbbb")
        brought = await asyncio.gather(*(carriers.bring(version, node) for node in "abc"))
        assert [{Path(place).parts[1] for place in each.places} for each in brought] == [
            {"here-a"}, {"here-b"}, {"here-c"}
        ]  # fmt: skip
        assert Counter(node for node, _, _ in disks.fetched) == {"a": 12, "b": 12, "c": 24}
        assert len(disks.fetched) == len(set(disks.fetched)) and disks.most == 8
        assert all(source != node for node, _, source in disks.fetched)
        carried, seconds = carriers.moved()
        assert carried == 480 and 0 < seconds < 10
        await carriers.bring(version, "c")  # a worker that came up late
        assert carriers.moved() == (480, seconds)
        await carriers.keep(4)
        assert sorted(disks.kept) == [("a", 4), ("b", 4), ("c", 4)]

    run(scenario)
    assert len(disks.tokens) == 1 and len(next(iter(disks.tokens))) == 32 and disks.hosts == {"ib0"}
    asked = Counter(disks.asked)
    assert all(asked[node, "stop"] == 1 for node in "abc")
    assert asked["c", "serve"] <= 8  # its streams may ask together for its address, and then it is known
    assert all(each.killed for each in fake_ray.handles)
    given = fake_ray.options["rlsys:r:carrier:a"]
    assert (given["num_cpus"], given["max_restarts"], given["max_concurrency"]) == (0, 0, 2 * 8 + 4)
    assert given["runtime_env"]["env_vars"].items() >= {"A": "b", "MALLOC_MMAP_THRESHOLD_": "1073741824"}.items()
    assert given["scheduling_strategy"] == ("a", False)


def test_what_was_sent_for_one_node_comes_to_no_second_one(disks: Disks) -> None:
    async def scenario(carriers: Carriers) -> None:
        version = sent(2, "a", "a", digest=None)
        await carriers.bring(version, "a")
        with pytest.raises(RunFailed, match="version 2 was sent when the run had one node"):
            await carriers.bring(version, "b")
        assert not disks.fetched and carriers.moved() == (0, 0.0)

    run(scenario)


def test_who_waits_for_a_version_hears_that_a_newer_one_is_on_its_way(disks: Disks) -> None:
    async def fetch(carrier: Any, number: int, source: str) -> None:
        if number == 0 and not gate.is_set():
            await gate.wait()

    gate = asyncio.Event()
    disks.fetch = fetch

    async def scenario(carriers: Carriers) -> None:
        first = asyncio.create_task(carriers.bring(sent(1, "a", "a"), "b"))
        await until(lambda: len(disks.fetched) == 1)
        second = asyncio.create_task(carriers.bring(sent(2, "a", "a"), "b"))
        with pytest.raises(Superseded):
            await first
        gate.set()
        assert (await second).version == 2
        assert {(2, 0), (2, 1)} <= disks.parts["b"]

    run(scenario)


@pytest.mark.parametrize("victim", ["a", "b"], ids=["source", "receiver"])
def test_a_carrier_that_dies_in_a_delivery_comes_back_with_what_it_had(
    disks: Disks, fake_ray: FakeRay, victim: str
) -> None:
    async def fetch(carrier: Any, number: int, source: str) -> None:
        if number == 5 and not died:
            await until(lambda: len(disks.fetched) >= 4)
            died.append(number)
            handle(whole[0], victim).die()
            raise SourceFailed("cut")

    died: list[int] = []
    whole: list[Carriers] = []
    disks.fetch = fetch

    async def scenario(carriers: Carriers) -> None:
        whole.append(carriers)
        await carriers.ensure("ab")
        await carriers.bring(sent(3, *"aaaaaa"), "b")
        assert disks.parts["b"] == {(3, number) for number in range(6)}
        assert Counter(number for _, number, _ in disks.fetched)[0] == 1  # it lay there already
        assert Counter(node for node, _ in disks.starts) == {"a": 1, "b": 1} | {victim: 2}
        assert f"rlsys:r:carrier:{victim}#1" in fake_ray.options

    run(scenario)


def test_a_carrier_that_dies_at_rest_is_back_at_once_and_keeps_the_newest(disks: Disks) -> None:
    async def scenario(carriers: Carriers) -> None:
        await carriers.bring(sent(3, "a"), "b")
        await carriers.keep(3)
        handle(carriers, "b").die()
        await until(lambda: disks.starts[-1] == ("b", 3))
        await until(lambda: handle(carriers, "b") is not None)
        assert not handle(carriers, "b").killed and carriers._nodes["b"].restarts == 1

    run(scenario)


def test_another_node_is_asked_for_what_one_does_not_give(disks: Disks) -> None:
    async def fetch(carrier: Any, number: int, source: str) -> None:
        if carrier.node == "c" and source == "a":
            refused.append(number)
            raise SourceFailed(f"{number} from a")

    refused: list[int] = []
    disks.fetch = fetch

    async def scenario(carriers: Carriers) -> None:
        version = sent(3, "a", "a")
        await carriers.bring(version, "b")
        await carriers.bring(version, "c")
        assert [source for node, _, source in disks.fetched if node == "c"] == ["b", "b"]
        assert carriers.moved()[0] == 40
        assert len(disks.starts) == 3  # nobody was taken for dead

    run(scenario)


def test_a_part_that_nobody_gives_is_an_error_that_names_it_and_the_version_may_be_asked_for_again(
    disks: Disks,
) -> None:
    async def fetch(carrier: Any, number: int, source: str) -> None:
        if number == 1:
            refused.append(number)
            raise SourceFailed("1 from a")

    refused: list[int] = []
    disks.fetch = fetch

    async def scenario(carriers: Carriers) -> None:
        with pytest.raises(RunFailed, match="p1 of version 3 lies on no node that can send it"):
            await carriers.bring(sent(3, "a", "a"), "b")
        assert len(refused) == 2  # twice from the same source, and not for ever
        disks.fetch = None
        assert (await carriers.bring(sent(4, "a", "a"), "b")).version == 4

    run(scenario)


def test_a_node_whose_memory_is_full_is_told_apart_from_one_that_died(disks: Disks) -> None:
    async def fetch(carrier: Any, number: int, source: str) -> None:
        raise OSError("no space left")

    disks.fetch = fetch

    async def scenario(carriers: Carriers) -> None:
        version = sent(3, "a")
        with pytest.raises(RunFailed, match="the weight carrier of node b doing fetch: OSError: no space left"):
            await carriers.bring(version, "b")
        assert [node for node, _ in disks.starts].count("b") == 1
        disks.fetch = None
        await carriers.bring(version, "b")  # the same version: it is tried anew
        assert disks.fetched == [("b", 0, "a")]

    run(scenario)


def test_a_carrier_that_does_not_start_or_dies_again_and_again_is_given_up(disks: Disks, fake_ray: FakeRay) -> None:
    async def start(carrier: Any) -> None:
        raise RuntimeError("the lock is taken")

    disks.start = start

    async def scenario(carriers: Carriers) -> None:
        for _ in range(6):
            with pytest.raises(RunFailed, match="carrier of node a starting: RuntimeError: the lock is taken"):
                await carriers.ensure(["a"])
        assert all(each.killed for each in fake_ray.handles)
        with pytest.raises(RunFailed, match="node a has no weight carrier"):
            await carriers.ensure(["a"])
        assert len(disks.starts) == 6

    run(scenario)


def test_one_that_kept_a_version_has_all_its_tries_again(disks: Disks) -> None:
    async def start(carrier: Any) -> None:
        raise RuntimeError("the lock is taken")

    async def scenario(carriers: Carriers) -> None:
        await carriers.ensure("ab")
        await carriers.keep(1)
        disks.start = start
        handle(carriers, "a").die()
        await until(lambda: handle(carriers, "a") is None)
        for _ in range(6):
            with pytest.raises(RunFailed, match="the lock is taken"):
                await carriers.ensure(["a"])
        with pytest.raises(RunFailed, match="node a has no weight carrier"):
            await carriers.ensure(["a"])
        assert len(disks.starts) == 2 + 6

    run(scenario)


def test_one_that_kept_a_version_between_its_deaths_is_not_given_up(disks: Disks) -> None:
    async def scenario(carriers: Carriers) -> None:
        for number in range(8):
            await carriers.bring(sent(number, "a"), "a")
            await carriers.keep(number)
            before = handle(carriers, "a")
            before.die()
            await until(lambda before=before: handle(carriers, "a") not in (before, None))  # type: ignore[misc]
        assert len(disks.starts) == 9

    run(scenario)


def test_at_the_end_a_death_starts_nothing(disks: Disks, fake_ray: FakeRay) -> None:
    run(lambda carriers: carriers.ensure("ab"))
    assert len(fake_ray.handles) == 2 and sorted(disks.asked) == [("a", "stop"), ("b", "stop")]
