"""What the pool knows of a worker: whom a death makes a suspect, and what was lost with it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, RayError

from actors.specs import IDLE
from actors.worker import WorkerStatus
from actors.worker_registry import Assignment, State, WorkerRecord, WorkerRegistry, close, record_death, suspect
from rlsys.errors import RunFailed
from rlsys.system.supervisor import Supervised


def worker(state: State = State.READY, generated: int | None = 7, delivered: int = 5) -> WorkerRecord:
    spec: Any = type("Spec", (), {"name": "w0"})
    status = WorkerStatus(
        pid=1, log="", version=1, generated_tokens=generated or 0, busy_s=0.0, alive_s=1.0, rss_mb=1.0,
        engine_cpu_s=1.0, own_cpu_s=1.0, engine=IDLE,
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
    dead, play = worker(generated=generated, delivered=delivered), Assignment(episodes=2)
    dead.playing.add(play)
    for _ in range(2):
        record_death(dead, RayError("it is gone"))
    assert (dead.lost_tokens, dead.state, dead.blameless) == (lost, State.DEAD, False)
    assert play.by_itself and "it is gone" in dead.died_of


def test_who_played_on_a_node_that_is_gone_is_no_suspect() -> None:
    dead, play = worker(), Assignment(episodes=2)
    dead.playing.add(play)
    record_death(dead, NodeDiedError("the node it was running on is dead"))
    assert dead.blameless and not play.by_itself and play.suspected is None


@pytest.mark.parametrize("state", list(State))
def test_one_without_the_newest_weights_serves_nothing_and_is_otherwise_what_it_was(state: State) -> None:
    late = worker(state)
    close(late, 7, "too late")
    assert late.state is (State.STALE if state is State.READY else state)


def idle(state: State = State.READY) -> WorkerRecord:
    life = Supervised[Any]("w", lambda: None, asyncio.sleep, str)
    return WorkerRecord(spec=None, state=state, life=life)  # type: ignore[arg-type]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def asked(registry: WorkerRegistry, *episodes: int, company: object = None) -> list[asyncio.Task[Assignment]]:
    tasks = [asyncio.create_task(registry.admit(count, company=company)) for count in episodes]
    await settled()
    return tasks


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def given(tasks: list[asyncio.Task[Assignment]]) -> list[bool]:
    return [task.done() for task in tasks]


def test_a_worker_is_given_what_it_has_room_for_and_the_rest_waits_in_order_of_arrival() -> None:
    async def scenario() -> None:
        first, second = idle(), idle()
        registry = WorkerRegistry([first, second], in_flight=10)
        tasks = await asked(registry, *[4] * 7)
        assert given(tasks) == [True] * 4 + [False] * 3 and (first.in_flight, second.in_flight) == (8, 8)
        await registry.leave(tasks[3].result())
        await settled()
        assert given(tasks) == [True] * 5 + [False] * 2

    run(scenario)


def test_one_that_comes_back_gets_its_share_and_no_more() -> None:
    async def scenario() -> None:
        late, back = idle(State.STALE), idle(State.STALE)
        registry = WorkerRegistry([late, back], in_flight=16)
        tasks = await asked(registry, *[8] * 256)
        await registry.open(back)
        await settled()
        assert (late.in_flight, back.in_flight, sum(given(tasks))) == (0, 16, 2)

    run(scenario)


def test_a_group_larger_than_a_workers_room_is_played_and_keeps_its_turn() -> None:
    async def scenario() -> None:
        only = idle()
        registry = WorkerRegistry([only], in_flight=2)
        small, large, next_small = await asked(registry, 1, 8, 1)
        assert given([small, large, next_small]) == [True, False, False]  # later small ones do not overtake it
        await registry.leave(small.result())
        await settled()
        assert given([large, next_small]) == [True, False] and only.in_flight == 8
        await registry.leave(large.result())
        await settled()
        assert next_small.done()

    run(scenario)


def test_suspects_play_with_their_company_alone_and_when_nobody_else_waits() -> None:
    async def scenario() -> None:
        only = idle()
        registry = WorkerRegistry([only], in_flight=4)
        (first,) = await asked(registry, 2)
        suspects = await asked(registry, 2, company="a") + await asked(registry, 2, company="b")
        (other,) = await asked(registry, 4)
        assert given([*suspects, other]) == [False] * 3
        await registry.leave(first.result())
        await settled()
        assert given([*suspects, other]) == [False, False, True]
        await registry.leave(other.result())
        (late,) = await asked(registry, 2)
        assert given([*suspects, late]) == [True, False, False]  # there is room, but not beside a suspect
        await registry.leave(suspects[0].result())
        await settled()
        assert given([*suspects, late]) == [True, False, True]
        (mate,) = await asked(registry, 2, company="b")
        await registry.leave(late.result())
        await settled()
        assert suspects[1].done() and mate.done() and only.in_flight == 4

    run(scenario)


def test_suspects_that_have_waited_long_get_a_worker_while_others_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.worker_registry.SUSPECTS_WAIT_S", 0.0)

    async def scenario() -> None:
        only = idle()
        registry = WorkerRegistry([only], in_flight=4)
        first, second = await asked(registry, 2, 2)
        (suspect,) = await asked(registry, 2, company="a")
        (late,) = await asked(registry, 2)
        await asyncio.sleep(0.001)
        await registry.leave(first.result())
        await settled()
        assert given([suspect, late]) == [False, False]  # the worker is kept until it is empty
        await registry.leave(second.result())
        await settled()
        assert given([suspect, late]) == [True, False]
        await registry.leave(suspect.result())
        await settled()
        assert late.done()

    run(scenario)


def test_a_worker_has_as_many_episodes_as_its_groups_and_the_least_loaded_gets_the_next() -> None:
    async def scenario() -> None:
        draw, workers = random.Random(0), [idle() for _ in range(5)]
        registry, plays = WorkerRegistry(workers, in_flight=40), list[Assignment]()
        for _ in range(300):
            if plays and (len(plays) > 12 or draw.random() < 0.4):
                gone = plays.pop(draw.randrange(len(plays)))
                await registry.leave(gone)
                await registry.leave(gone)  # a second time changes nothing
            else:
                least = min(worker.in_flight for worker in workers)
                plays.append(await registry.admit(draw.randint(1, 8)))
                assert plays[-1].worker.in_flight == least + plays[-1].episodes
            assert [worker.in_flight for worker in workers] == [
                sum(play.episodes for play in plays if play.worker is worker) for worker in workers
            ]

    run(scenario)


def test_who_gave_up_waiting_holds_no_place() -> None:
    async def scenario() -> None:
        only = idle()
        registry = WorkerRegistry([only], in_flight=2)
        first, second, third, fourth = await asked(registry, 2, 2, 2, 2)
        second.cancel()
        await settled()
        await registry.leave(first.result())
        third.cancel()  # its place came in the same turn of the loop
        await settled()
        assert fourth.done() and only.playing == {fourth.result()}

    run(scenario)


def test_everybody_who_waits_hears_that_the_run_cannot_go_on() -> None:
    async def scenario() -> None:
        registry = WorkerRegistry([idle(State.DEAD)], in_flight=2)
        tasks = await asked(registry, 1, 1) + await asked(registry, 1, company="a")
        ready = asyncio.create_task(registry.ready())
        await settled()
        await registry.fail("no way")
        await registry.fail("for another reason")
        for task in [*tasks, ready, *await asked(registry, 1)]:
            with pytest.raises(RunFailed, match="no way"):
                await task

    run(scenario)


def test_supervision_that_breaks_ends_the_run() -> None:
    async def scenario() -> None:
        registry = WorkerRegistry([idle(State.DEAD)], in_flight=2)

        async def broken() -> None:
            raise KeyError("x")

        await registry.run_in_background(broken())
        with pytest.raises(RunFailed, match="supervision of the rollout workers broke: KeyError"):
            await registry.ready()

    run(scenario)


def test_who_gave_up_at_the_moment_at_which_the_run_could_not_go_on_is_only_cancelled() -> None:
    async def scenario() -> None:
        registry = WorkerRegistry([idle(State.STALE)], in_flight=10)
        (waiting,) = await asked(registry, 4)
        await registry.fail("no worker starts")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(scenario)
