"""What the pool knows of a worker: whom a death makes a suspect, and what was lost with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, RayError

from actors.members import Assignment, State, WorkerRecord, bury, close, suspect
from actors.specs import IDLE
from actors.worker import WorkerStatus
from rlsys.system.supervisor import Supervised


def member(state: State = State.READY, generated: int | None = 7, delivered: int = 5) -> WorkerRecord:
    spec: Any = type("Spec", (), {"name": "w0"})
    status = WorkerStatus(
        pid=1, log="", version=1, generated_tokens=generated or 0, busy_s=0.0, alive_s=1.0, rss_mb=1.0, engine=IDLE,
        tools={},
    )  # fmt: skip
    life = Supervised[Any]("w0", lambda: None, asyncio.sleep, str)
    known = status if generated is not None else None
    return WorkerRecord(spec=spec, life=life, state=state, last_status=known, delivered=delivered)


@pytest.mark.parametrize(
    ("plays", "sizes"),
    [
        (1, [1]),
        (2, [1, 1]),
        (4, [2, 2]),
        (5, [2, 2, 1]),
        (9, [3, 3, 3]),
        (10, [3, 3, 2, 2]),
        (24, [5, 5, 5, 5, 4]),
    ],
)
def test_suspects_play_in_companies_of_about_the_root_of_their_number_and_then_alone(
    plays: int, sizes: list[int]
) -> None:
    first = [Assignment(episodes=1) for _ in range(plays)]
    suspect(first)
    assert sorted(Counter(play.suspected for play in first).values(), reverse=True) == sizes
    assert {play.by_itself for play in first} == {plays == 1}
    again = [Assignment(episodes=1, company=play.suspected) for play in first]
    suspect([*again, Assignment(episodes=1)])
    assert len({play.suspected for play in again}) == plays and not any(play.by_itself for play in again)


def test_nobody_is_suspected_where_nothing_was_played() -> None:
    suspect([])


@pytest.mark.parametrize(("generated", "delivered", "lost"), [(7, 5, 2), (5, 5, 0), (4, 5, 0), (6, 5, 1), (None, 0, 0)])
def test_what_a_dead_worker_sampled_and_did_not_deliver_is_lost_once(
    generated: int | None, delivered: int, lost: int
) -> None:
    dead, play = member(generated=generated, delivered=delivered), Assignment(episodes=2)
    dead.playing.add(play)
    for _ in range(2):
        bury(dead, RayError("it is gone"))
    assert (dead.lost_tokens, dead.state, dead.blameless) == (lost, State.DEAD, False)
    assert play.by_itself and "it is gone" in dead.died_of


def test_who_played_on_a_node_that_is_gone_is_no_suspect() -> None:
    dead, play = member(), Assignment(episodes=2)
    dead.playing.add(play)
    bury(dead, NodeDiedError("the node it was running on is dead"))
    assert dead.blameless and not play.by_itself and play.suspected is None


@pytest.mark.parametrize("state", list(State))
def test_one_without_the_newest_weights_serves_nothing_and_is_otherwise_what_it_was(state: State) -> None:
    late = member(state)
    close(late, 7, "too late")
    assert late.without == (7, "too late")
    assert late.state is (State.STALE if state is State.READY else state)
