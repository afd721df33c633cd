"""How a call to all ranks ends when one of them fails. No Ray: what it would raise is built here."""

import asyncio
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, NodeDiedError, RayError, RayTaskError

import learners.actor
import learners.group
import learners.rank
from learners.actor import PINGS, WRITING, LearnerActor, RankPlacement, fetch, interface_of
from learners.group import GroupOptions, LearnerGroup, order_ranks, rank_specs
from learners.meeting import RankSpec
from rlsys.batch import UpdateReport
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput, LearnerLost, RunFailed
from rlsys.metrics import Sum, values
from rlsys.system.device import DEVICES
from rlsys.system.parts import of_part
from rlsys.system.weight_folder import Part, WeightFolder, WeightManifest
from rlsys.types import Group
from tests.fakes.fake_ray import FakeRay
from tests.makers import made

OPTIONS = GroupOptions(cpus=1, gpus=0, env_vars={}, start_timeout_s=60, call_timeout_s=60, ping_timeout_s=60)
SPEC = RankSpec(
    rank=1, world_size=2, master_addr="", master_port=0, device=DEVICES["cpu"], dtype="float32", seed=0,
    gradient_checkpointing=False,
)  # fmt: skip


def rank(load: Exception | None = None, ping: Exception | None = None) -> Any:
    """It answers both, or raises what is given."""

    def method(error: Exception | None) -> Any:
        async def answer(*_: object) -> None:
            if error is not None:
                raise error

        return SimpleNamespace(remote=answer)

    return SimpleNamespace(load=method(load), ping=method(ping))


def group_of(*ranks: Any) -> LearnerGroup:
    group = LearnerGroup([], OPTIONS)
    group.life.handle = list(ranks)
    return group


def load_on(*ranks: Any) -> None:
    asyncio.run(group_of(*ranks).load(Path("m")))


def call(cause: Exception) -> None:
    text = f"Traceback of the rank\n\n{type(cause).__name__}: {cause}\n"
    load_on(rank(load=RayTaskError("begin", text, cause).as_instanceof_cause()))


def test_what_a_rank_cannot_use_is_bad_input_to_the_driver() -> None:
    with pytest.raises(BadInput) as caught:
        call(BadInput("model m: config.json is missing"))
    assert str(caught.value) == "model m: config.json is missing"
    assert type(caught.value) is BadInput


@pytest.mark.parametrize("cause", [ValueError("first\nranks got 1 and 2 rows"), TimeoutError("ranks got 1 and 2 rows")])
def test_anything_else_that_a_rank_raises_fails_the_run_with_its_last_line(cause) -> None:
    with pytest.raises(RunFailed, match="^learner loading m: .*ranks got 1 and 2 rows$"):
        call(cause)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ActorDiedError(), "a rank died"),
        (
            NodeDiedError("Task failed because the node it was running on is dead or unavailable."),
            "the Ray node died",
        ),
        (RayError("no memory\nat all"), "RayError: no memory"),
    ],
)
def test_a_rank_that_is_gone_is_told_from_a_node_that_is_gone(error: RayError, said: str) -> None:
    with pytest.raises(RunFailed) as caught:
        load_on(rank(load=error))
    assert str(caught.value) == f"learner loading m: {said}"
    assert (type(caught.value) is LearnerLost) == ("died" in said)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([None, ActorDiedError()], "a rank died"),
        ([ValueError("busy"), NodeDiedError("the node it was running on is dead")], "the Ray node died"),
        ([None, RayError("no memory")], None),  # of this one nobody died
    ],
)
def test_a_rank_that_died_is_found_among_those_that_answer(answers: list[Exception | None], said: str | None) -> None:
    group = group_of(*(rank(ping=answer) for answer in answers))
    with nullcontext() if said is None else pytest.raises(LearnerLost, match=f"^learner answering: {said}$"):
        asyncio.run(group.check("answering"))


def test_groups_in_hand_need_nobody_and_those_of_a_lost_node_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    group = made.group(made.ticket(7))

    def get(asked: str | list[str]) -> list[Group]:
        if "lost" in asked:
            raise RayError
        return [replace(group, worker=ref) for ref in asked]

    monkeypatch.setattr(ray, "get", get)
    assert fetch({7: group}) == ({7: group}, frozenset())
    assert fetch({7: group, 8: "there"}) == ({7: group, 8: replace(group, worker="there")}, frozenset())
    assert fetch({7: group, 8: "there", 9: "lost"}) == ({7: group}, {9})


def test_ranks_are_numbered_node_by_node_and_there_by_gpu() -> None:
    places = [
        RankPlacement("10.0.0.7", "10"),
        RankPlacement("10.0.0.3", "1"),
        RankPlacement("10.0.0.7", "9"),
        RankPlacement("10.0.0.3", "0"),
    ]
    assert order_ranks(places) == [3, 1, 2, 0]
    assert order_ranks([RankPlacement("10.0.0.3", "")] * 3) == [0, 1, 2]


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.9") == ""


def test_a_collective_that_a_rank_did_not_come_to_is_a_lost_learner_whose_ranks_can_be_started_again() -> None:
    with pytest.raises(LearnerLost, match="NCCL_SOCKET_IFNAME"):
        call(RuntimeError("[unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"))


@pytest.mark.parametrize(("address", "interface"), [("127.0.0.1", "lo"), ("10.0.0.2", "ib0")])
def test_a_rank_that_joins_says_its_process_and_listens_where_the_others_are(
    address: str, interface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[Any] = []
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(learners.rank, "LearnerRank", lambda spec: joined.append(spec))
    monkeypatch.setattr(learners.actor, "interface_of", {"127.0.0.1": "lo", "10.0.0.1": "ib0"}.get)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    actor = LearnerActor(1, {})
    try:
        assert actor.start(SPEC, (address, 4321)) == os.getpid()
        assert os.environ["GLOO_SOCKET_IFNAME"] == interface
    finally:
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
    assert joined == [replace(SPEC, master_addr=address, master_port=4321)]


class Rank:
    """A rank that notes what it is asked."""

    places = (("10.0.0.9", "1"), ("10.0.0.9", "0"), ("10.0.0.5", "0"))
    gbps = (9.0, 0.5, 9.0)
    probe: list[list[float]]

    def __init__(self, number: int, secrets: Any) -> None:
        self.number, self.secrets, self.asked = number, secrets, list[Any]()

    def place(self) -> RankPlacement:
        node, gpu = self.places[self.number]
        return RankPlacement(node, gpu, f"id of {node}")

    def open_store(self, alone: bool) -> tuple[str, int]:
        self.asked.append(("open", alone))
        return "10.0.0.5", 4321

    def start(self, spec: RankSpec, address: tuple[str, int]) -> None:
        self.asked.append((spec.rank, spec.world_size, address))

    def measure_gbps(self) -> float:
        return self.gbps[self.number]

    def ping(self) -> None: ...

    def begin(self, *given: Any, **named: Any) -> None:
        self.asked.append((given, named))

    def build(self, part: str) -> frozenset[int]:
        self.asked.append(part)
        return frozenset({self.number + 5}) if self.number else frozenset()

    def update(self) -> UpdateReport:
        return UpdateReport(applied=self.number != 1, metrics={"n": Sum(self.number)}, seconds=float(self.number))

    def logprobs(self, token_ids: Any) -> Any:
        self.asked.append(token_ids)
        return [[float(ids[0]), self.number] for ids in token_ids]

    def export(self, folder: Any, version: int, probe: Any) -> Any:
        part = Part(name=f"p{self.number}", bytes=1, digest=None, node="")
        share = WeightManifest(version=version, tensors=self.number, parts=(part,))
        return share, [probe, self.number]

    def snapshot(self, *given: Any) -> None:
        self.asked.append(given)

    def write(self) -> None:
        self.asked.append("written")

    def load(self, *given: Any) -> None:
        self.asked.append(given)


def test_ranks_meet_are_asked_together_and_come_back_in_the_same_places(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeRay()
    threads: list[Any] = []

    def remote(concurrency_groups: Any) -> Any:
        threads.append(concurrency_groups)
        return fake.remote

    made_of = SimpleNamespace(remote=remote, kill=fake.kill, put=lambda part: f"at {part}")
    monkeypatch.setattr(learners.group, "ray", made_of)
    monkeypatch.setattr(learners.group, "shard_plan", lambda plan, ranks: [f"{plan.version}/{n}" for n in range(ranks)])
    options = replace(OPTIONS, cpus=2, gpus=1, env_vars={"A": "b"}, run="r")
    group = LearnerGroup(rank_specs(SPEC, 3), options, {"KEY": "secret"}, Rank)
    plan: Any = SimpleNamespace(version=4)

    def requests() -> list[Any]:
        """By rank: what each was asked since this was looked at last."""
        actors = [handle.actor for handle in group.life.handle or []]
        calls = [actor.asked for actor in actors]
        for actor in actors:
            actor.asked = []
        return calls

    async def scenario() -> None:
        await group.start(["a", "b", "c"])
        met = ("10.0.0.5", 4321)
        # the node of the lower address first, there by GPU; several nodes: the store is not for one of them alone
        assert group.nodes == ["10.0.0.5", "10.0.0.9", "10.0.0.9"] and group.node_ids[0] == "id of 10.0.0.5"
        assert requests() == [[("open", False), (0, 3, met)], [(1, 3, met)], [(2, 3, met)]]
        assert [handle.actor.number for handle in group.life.handle or []] == [2, 1, 0]
        (warning,) = [record for record in caplog.records if "all-reduce" in record.getMessage()]
        assert warning.levelname == "WARNING" and "0.5 GB/s" in warning.getMessage()  # of the slowest
        by_rank = {name.removeprefix("rlsys:r:learner:"): settings for name, settings in fake.options.items()}
        assert {name: settings["scheduling_strategy"] for name, settings in by_rank.items()} == {
            "0": "a",
            "1": "b",
            "2": "c",
        }
        assert {
            (settings["num_cpus"], settings["num_gpus"], settings["max_restarts"]) for settings in by_rank.values()
        } == {(2, 1, 0)}
        assert threads == [{PINGS: 1, WRITING: 1}] * 3  # the thread that pings does not wait for the one that writes
        assert by_rank["0"]["runtime_env"] == {
            "env_vars": {"A": "b"} | of_part("learner:0")
        }  # and no secret, which Ray would log
        assert {handle.actor.secrets["KEY"] for handle in fake.handles} == {"secret"}

        await group.begin("m", LearnerConfig(), "grpo", total_steps=9)
        assert requests() == [[(("m", LearnerConfig(), "grpo"), {"total_steps": 9})]] * 3
        assert await group.build(plan) == {6, 7}
        assert requests() == [["at 4/0"], ["at 4/1"], ["at 4/2"]]
        report = await group.update(4)
        assert (report.applied, report.seconds, values(report.metrics)["n"]) == (False, 2.0, 3)
        requests()
        # Seven sequences over three ranks, the longest first, each to whom has least: rank 0 is actor 2.
        lengths = [4, 30, 10, 10, 20, 2, 6]
        sequences = [[at] * length for at, length in enumerate(lengths)]
        results = await group.logprobs(sequences)
        assert [at for at, _ in results] == [0, 1, 2, 3, 4, 5, 6]
        given_to = [[len(ids) for ids in part] for (part,) in requests()]
        assert given_to == [[30], [20, 4, 2], [10, 10, 6]]  # 30, 26 and 26 of 82 tokens
        assert [by for _, by in results] == [1, 2, 0, 0, 1, 1, 0]
        assert await group.logprobs([[1, 2]]) == [[1.0, 2]]
        requests()
        asks = made.probe([[1]], 0.25)
        manifest, probe = await group.export(WeightFolder(Path("/w")), 7, asks)
        assert (manifest.version, manifest.tensors, len(manifest.parts), probe) == (7, 3, 3, [asks, 2])
        await group.snapshot(Path("/c"), "m")
        await group.write()
        await group.load(Path("/c"))
        await group.load(Path("/c"), optimizers_alone=True)
        assert requests() == [[("/c", "m"), "written", ("/c", False), ("/c", True)]] * 3
        await group.check("playing")

        (group.life.handle or [])[1].die()
        with pytest.raises(LearnerLost, match="^learner playing: a rank died$"):
            await group.check("playing")
        await group.restart()
        assert group.restarts == 1 and all(handle.killed for handle in fake.handles[:3])
        assert fake.handles[3].name == "rlsys:r:learner:0#1"  # Ray keeps a name for a moment longer
        await group.check("playing")
        await group.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


START, CALL = "learner.start_timeout_s", "learner.update_timeout_s"


@pytest.mark.parametrize(
    ("waits", "key"),
    [
        (lambda group: group.meet(group.life.handle), "cluster.placement_timeout_s"),
        (lambda group: group.measure_links(), START),
        (lambda group: group.begin("m", LearnerConfig(), None), START),
        (lambda group: group.update(7), CALL),
        (lambda group: group.logprobs([]), CALL),
        (lambda group: group.export(WeightFolder("here", "w"), 1, []), CALL),
        (lambda group: group.snapshot(Path("c"), "m"), CALL),
        (lambda group: group.write(), CALL),
        (lambda group: group.load(Path("c")), CALL),
    ],
)
def test_a_call_that_takes_too_long_names_the_key_that_gives_it_longer(waits: Any, key: str) -> None:
    """Those of the start have another time than the calls of a step."""

    class Hanging:
        def __getattr__(self, name: str) -> Any:
            return SimpleNamespace(remote=lambda *_, **__: asyncio.Event().wait())

    async def scenario() -> None:
        hanging = Hanging()
        hanging.ping = rank().ping
        group = group_of(hanging)
        group.specs = [SPEC]
        group.options = replace(OPTIONS, start_timeout_s=0.002, call_timeout_s=0.003)
        await waits(group)

    with pytest.raises(RunFailed, match=re.escape(key)) as caught:
        asyncio.run(scenario())
    assert f"{0.003 if key == CALL else 0.002} s" in str(caught.value) and type(caught.value) is RunFailed
    assert (CALL in str(caught.value)) == (key == CALL)
