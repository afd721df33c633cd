"""A group in which nothing goes on is found within twice the time of an episode, and one that is slow never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import actors.worker
from actors.pool import RolloutPool
from actors.scoring import ScoringSpec
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.clock import idle_s, note_progress, pause_deadlines, track_progress
from rlsys.deadlines import hung_s
from rlsys.group_rollout import run_group
from rlsys.system import supervisor
from rlsys.types import Failure, Ticket
from tests.fakes.fake_ray import FakeRay
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import PLAY, Script, make_pool, version
from tests.makers import made
from tests.unit.actors.test_cut_by_time import Engine
from tests.unit.envs.services.test_guard import now
from tests.unit.envs.services.test_guard import play as run
from tests.unit.rlsys.test_rollout import LETTERS, counting, one

# A 7B: answers of 14,336 tokens in 1,792 s at the slowest, a start of 756 s.
TIME_S, START_S = 1792.0, 756.0
PLAN = replace(PLAY, timeout_s=TIME_S, infra_retries=2, data_retries=1)


@pytest.fixture
def pinging_seldom(fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    async def inline(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(supervisor, "PING_EVERY_S", 60.0)
    monkeypatch.setattr(asyncio, "to_thread", inline)  # a thread is no part of the test's clock
    return fake_ray


def played(
    script: Script, plan: Any = PLAN, *, start_s: float = START_S, died: Callable[[str], None] = lambda of: None
) -> tuple[float, list[Any]]:
    """How long one group took, and what became of it. died: told what each worker was ended of."""

    async def whole() -> tuple[float, list[Any]]:
        pool: RolloutPool = make_pool(script, workers=2, start_timeout_s=start_s, call_timeout_s=120.0, in_flight=256)
        await pool.start()
        try:
            await pool.publisher.publish(version(1))
            began = now()
            group = await pool.run(made.ticket(7), plan, lambda _: None)
            return now() - began, [summary.reward for summary in group.summaries]
        finally:
            for worker in pool.workers:
                died(worker.died_of)
            await pool.stop()

    outcome: tuple[float, list[Any]] = run(whole())
    return outcome


def hanging(attempts: int) -> Any:
    async def hook(worker: Any, ticket: Ticket) -> None:
        if ticket.attempt < attempts:
            await asyncio.Event().wait()

    return hook


@pytest.mark.usefixtures("pinging_seldom")
def test_a_group_that_hangs_is_played_again_after_twice_the_time_of_an_episode() -> None:
    script = Script(play=hanging(1), still=lambda sequence: 1e6)
    took, rewards = played(script)
    assert took == 2 * TIME_S == hung_s(TIME_S, START_S).value  # an hour: it was 22
    assert not any(isinstance(reward, Failure) for reward in rewards)
    assert [sequence for _, sequence in script.played] == [7, 7]


@pytest.mark.usefixtures("pinging_seldom")
def test_one_whose_end_its_worker_has_seen_and_nobody_else_is_played_again_too() -> None:
    took, rewards = played(Script(play=hanging(1), still=lambda sequence: None))
    assert took == 2 * TIME_S + 120.0 and not any(isinstance(reward, Failure) for reward in rewards)


@pytest.mark.usefixtures("pinging_seldom")
@pytest.mark.parametrize(
    ("still", "start_s", "key"),
    [
        (1e6, START_S, "(2 x rollout.episode_timeout_s)"),
        (1e6, 5000.0, "(rollout.start_timeout_s)"),  # of a large model: more than two episodes
        (None, START_S, "(rollout.call_timeout_s)"),
    ],
)
def test_what_is_said_of_it_names_the_key_that_set_its_time(still: float | None, start_s: float, key: str) -> None:
    died: list[str] = []
    played(Script(play=hanging(1), still=lambda sequence: still), start_s=start_s, died=died.append)
    assert len(list(filter(None, died))) == 1 and key in "".join(died)


@pytest.mark.usefixtures("pinging_seldom")
def test_a_slow_group_is_left_alone_for_as_long_as_something_goes_on() -> None:
    async def slow(worker: Any, ticket: Ticket) -> None:
        await asyncio.sleep(80000.0)  # 22 h of honest waves

    script = Script(play=slow, still=lambda sequence: now() % 1700)  # 1,700 s from one message to the next
    took, rewards = played(script)
    assert took == 80000.0 and len(script.played) == 1 and not any(isinstance(reward, Failure) for reward in rewards)


def test_a_group_in_line_goes_on_while_others_in_the_line_do() -> None:
    async def scenario() -> list[float]:
        with track_progress() as other:
            pass
        with track_progress() as group:
            seconds = []
            await asyncio.sleep(100)
            other.at = now()
            await asyncio.sleep(50)
            seconds.append(idle_s(group, [group, other]))
            with pause_deadlines():
                seconds.append(idle_s(group, [group, other]))
            seconds.append(idle_s(group, [group, other]))
            await asyncio.sleep(7)
            seconds.append(idle_s(group, [group, other]))
            note_progress()
            seconds.append(idle_s(group, []))
        note_progress()  # of no group
        return seconds

    assert run(scenario()) == [150.0, 50.0, 0.0, 7.0, 0.0]


def test_an_environment_that_hangs_as_it_is_opened_is_tried_as_often_as_any() -> None:
    async def hang(task: Any) -> Any:
        await asyncio.Event().wait()

    async def scenario() -> tuple[float, float, Any]:
        began, most = now(), 0.0
        player, source = made.player(LETTERS, Engine().generate), made.Source(hang, 1, one)
        with track_progress() as group:
            playing = asyncio.ensure_future(run_group(player, source, made.ticket(), replace(PLAN, group_size=1)))
            while not playing.done():
                await asyncio.sleep(16)  # 1,792 = 112 x 16
                most = max(most, idle_s(group, []))
        return now() - began, most, (await playing).trajectories[0]

    took, most, played = run(scenario())
    assert took == pytest.approx(3 * TIME_S, abs=16) and len(played.retried) == 2
    assert most <= TIME_S < hung_s(TIME_S, START_S).value


def test_a_worker_knows_what_goes_on_in_each_group_however_long_it_waits_for_seats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two seats and 16 answers of 62.5 s and more: the last ones wait for ten minutes and more, with an episode's time
    of 500 s."""
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: LETTERS)
    seconds: dict[str, Any] = {"stall_s": 9.0, "block_s": 9.0, "start_timeout_s": 9.0}
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    spec = WorkerSpec(name="rollout:0", engine=made.engine_spec(max_num_seqs=2), run_seed=0, scoring=scoring, **seconds)

    class Worlds:
        def play(self, plan: Any, task: Any) -> Any:
            class Playing(made.Source):
                def __enter__(self) -> Playing:
                    return self

                def __exit__(self, *_: object) -> None: ...

            return Playing(counting, 1, one)

    async def scenario() -> tuple[float, float | None, int]:
        worker = RolloutWorker(spec)
        worker.engine, worker.worlds, worker.version = Engine(), Worlds(), 1  # type: ignore[assignment]
        plan = replace(PLAN, timeout_s=500.0, max_turn_tokens=16384, max_context=32768)
        groups = [asyncio.ensure_future(worker.run_group(made.ticket(sequence), plan)) for sequence in range(8)]
        most = 0.0
        while not all(group.done() for group in groups):
            await asyncio.sleep(10)
            known = [await worker.idle_s(plan.purpose, sequence, 0) for sequence in range(8)]
            most = max(most, *(idle for idle in known if idle is not None), 0.0)
        ended = [(await group)[0] for group in groups]
        return most, await worker.idle_s(plan.purpose, 0, 0), sum(len(trajectories) for trajectories in ended)

    most, over, episodes = run(scenario())
    assert 62 < most < 500 and over is None and episodes == 16
