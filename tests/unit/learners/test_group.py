"""How a call to all ranks ends when one of them fails. No Ray: what it would raise is built here."""

import asyncio
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, NodeDiedError, RayError, RayTaskError

import learners.actor
import learners.rank
from learners.actor import LearnerActor, RankPlacement, fetch, interface_of
from learners.group import GroupOptions, LearnerGroup, order_ranks
from learners.meeting import RankSpec
from rlsys.errors import BadInput, LearnerLost, RunFailed
from rlsys.system.device import DEVICES
from rlsys.types import Group
from tests import made

OPTIONS = GroupOptions(cpus=1, gpus=0, env_vars={}, start_timeout_s=60, call_timeout_s=60, ping_timeout_s=60)


def call(cause: Exception, timeout_s: float = 60.0) -> None:
    async def raises() -> None:
        raise RayTaskError(
            "begin", f"Traceback of the rank\n\n{type(cause).__name__}: {cause}\n", cause
        ).as_instanceof_cause()

    async def wait() -> None:
        await LearnerGroup([], OPTIONS)._wait([raises()], "loading m", timeout_s)

    asyncio.run(wait())


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
    async def wait() -> None:
        async def raises() -> None:
            raise error

        await LearnerGroup([], OPTIONS)._wait([raises()], "updating on version 7", 60.0)

    with pytest.raises(RunFailed) as caught:
        asyncio.run(wait())
    assert str(caught.value) == f"learner updating on version 7: {said}"
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
    def rank(answer: Exception | None) -> Any:
        async def ping() -> None:
            if answer is not None:
                raise answer

        return SimpleNamespace(ping=SimpleNamespace(remote=ping))

    group = LearnerGroup([], OPTIONS)
    group.life.handle = list(map(rank, answers))
    assert asyncio.run(group._died()) == said


def test_groups_in_hand_need_nobody_and_those_of_a_lost_node_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = made.group(made.ticket(7))

    def get(asked: str | list[str]) -> list[Group]:
        if "lost" in asked:
            raise RayError
        return [replace(here, worker=ref) for ref in asked]

    monkeypatch.setattr(ray, "get", get)
    assert fetch({7: here}) == ({7: here}, frozenset())
    assert fetch({7: here, 8: "there"}) == ({7: here, 8: replace(here, worker="there")}, frozenset())
    assert fetch({7: here, 8: "there", 9: "lost"}) == ({7: here}, {9})


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
    spec = RankSpec(
        rank=1, world_size=2, master_addr="", master_port=0, device=DEVICES["cpu"], dtype="float32", seed=0,
        gradient_checkpointing=False,
    )  # fmt: skip
    actor = LearnerActor(1, {})
    try:
        assert actor.start(spec, (address, 4321)) == os.getpid()
        assert os.environ["GLOO_SOCKET_IFNAME"] == interface
    finally:
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
    assert joined == [replace(spec, master_addr=address, master_port=4321)]
