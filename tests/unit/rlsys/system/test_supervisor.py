"""Supervision by hand: a process is a number, and the test says which of them start and which die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rlsys.errors import RunFailed
from rlsys.system import supervisor
from rlsys.system.supervisor import GaveUp, Supervised, keep_pinging


class Process:
    """Incarnations are 0, 1, 2 ...; those in `broken` do not start."""

    def __init__(self, *broken: int, **policy: Any) -> None:
        self.broken, self.killed, self.starting = set(broken), list[int](), asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.life = Supervised[int]("w", lambda: self.life.restarts, self.start, self.killed.append, **policy)

    async def start(self, handle: int) -> None:
        self.starting.set()
        await self.gate.wait()
        if handle in self.broken:
            raise RunFailed(f"no room for {handle}")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_whoever_asks_at_the_same_time_gets_the_same_incarnation() -> None:
    async def scenario() -> None:
        process = Process()
        assert await asyncio.gather(process.life.ensure(), process.life.ensure()) == [0, 0]
        assert await process.life.ensure() == 0 and (process.life.starts, process.life.restarts) == (1, 0)

    run(scenario)


def test_the_first_report_of_a_death_kills_and_later_ones_change_nothing() -> None:
    async def scenario() -> None:
        process = Process()
        first = await process.life.ensure()
        assert process.life.declare_dead(first, "it hangs") and not process.life.declare_dead(first, "again")
        assert process.killed == [0] and process.life.handle is None and not process.life.declare_dead(None, "nobody")
        assert await process.life.ensure() == 1
        assert not process.life.declare_dead(first, "a late report") and process.killed == [0]

    run(scenario)


def test_a_start_that_fails_is_killed_told_to_all_who_wait_and_begun_anew_by_the_next() -> None:
    async def scenario() -> None:
        process = Process(0)
        answers = await asyncio.gather(process.life.ensure(), process.life.ensure(), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["no room for 0"] * 2 and process.killed == [0]
        assert await process.life.ensure() == 1 and process.life.restarts == 1

    run(scenario)


def test_one_that_dies_under_its_start_is_started_again_for_those_who_wait() -> None:
    async def scenario() -> None:
        process = Process()
        process.gate.clear()
        waiting = asyncio.create_task(process.life.ensure())
        await process.starting.wait()
        assert process.life.declare_dead(0, "found by another call")
        process.gate.set()
        assert await waiting == 1 and process.killed == [0]

    run(scenario)


def test_restarts_are_limited_without_progress_and_progress_gives_all_of_them_back() -> None:
    async def scenario() -> None:
        process = Process(*range(1, 9), max_restarts=2, goal="finishing a group")
        process.life.declare_dead(await process.life.ensure(), "it died")
        with pytest.raises(GaveUp, match="w was restarted 2 times without finishing a group; last: no room for 2"):
            await process.life.revive()
        assert process.killed == [0, 1, 2] and process.life.exhausted
        process.life.note_progress()
        process.broken.clear()
        assert await process.life.revive() == 3

    run(scenario)


def test_pauses_double_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def scenario() -> None:
        process = Process(*range(1, 9), max_restarts=None, pause_s=1.0)
        process.life.declare_dead(await process.life.ensure(), "it died")
        monkeypatch.setattr(supervisor.asyncio, "sleep", sleep)
        assert await process.life.revive() == 9

    run(scenario)
    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_restart_waits_for_its_place_and_without_one_nothing_is_counted() -> None:
    places: list[bool] = [False, True]

    async def find_place() -> None:
        if not places.pop(0):
            raise GaveUp("no node has room")

    async def scenario() -> None:
        process = Process(find_place=find_place)
        process.life.declare_dead(await process.life.ensure(), "it died")
        with pytest.raises(GaveUp, match="^no node has room$"):
            await process.life.revive()
        assert process.life.restarts == 0
        assert await process.life.revive() == 1

    run(scenario)


def test_at_the_end_what_starts_is_killed_what_serves_is_asked_before_and_nothing_begins() -> None:
    handles: list[int] = []

    async def ask(handle: int) -> None:
        handles.append(handle)
        raise RunFailed("no answer")

    async def scenario() -> None:
        process = Process()
        process.gate.clear()
        waiting = asyncio.create_task(process.life.ensure())
        await process.starting.wait()
        await process.life.stop(ask)
        assert process.killed == [0] and not handles
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(GaveUp, match="w is stopped"):
            await process.life.ensure()
        other = Process()
        await other.life.ensure()
        await other.life.stop(ask)
        assert (handles, other.killed) == ([0], [0]) and not other.life.declare_dead(0, "it was stopped")

    run(scenario)


def test_a_ping_goes_out_until_one_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [None, None, TimeoutError()]

    async def ping() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.0)
    with pytest.raises(TimeoutError):
        asyncio.run(keep_pinging(ping))
    assert not answers


def test_another_takes_the_place_of_one_that_lives() -> None:
    async def scenario() -> None:
        process = Process()
        await process.life.ensure()
        assert await process.life.restart() == 1 and process.killed == [0]

    run(scenario)


def test_a_stop_gives_up_the_start_that_somebody_waits_for_and_leaves_no_handle() -> None:
    async def scenario() -> None:
        process = Process()
        process.gate.clear()
        waiting = asyncio.create_task(process.life.ensure())
        await process.starting.wait()
        await process.life.stop()
        with pytest.raises(GaveUp):
            await waiting
        assert process.life.handle is None and process.killed == [0]

        served = Process()
        await served.life.ensure()
        await served.life.stop()
        assert served.life.handle is None and served.killed == [0]

    run(scenario)
