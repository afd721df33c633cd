"""A deadline counts the time in which its clock runs, and no other. Time itself is the test's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rlsys.clock import GRACE_S, cut_at_deadline, deadline, pause_deadlines
from tests.unit.envs.services.test_guard import play as run


def test_what_is_waited_for_with_a_stopped_clock_is_no_part_of_the_deadline() -> None:
    async def scenario() -> tuple[float, float]:
        async with deadline(10.0) as clock:
            await asyncio.sleep(4)
            with pause_deadlines():
                await asyncio.sleep(1000)
            await asyncio.sleep(5)
            with pause_deadlines():
                await asyncio.sleep(100)
        return clock.ran_s, clock.waited_s

    assert run(scenario()) == (9.0, 1100.0)


def test_what_is_left_of_it_ends_it_after_the_wait() -> None:
    async def scenario() -> float:
        try:
            async with deadline(10.0) as clock:
                await asyncio.sleep(4)
                with pause_deadlines():
                    await asyncio.sleep(1000)
                await asyncio.sleep(7)
        except TimeoutError:
            return clock.ran_s
        raise AssertionError

    assert run(scenario()) == 10.0


def test_a_stop_within_a_stop_counts_once_and_one_without_a_deadline_does_nothing() -> None:
    async def scenario() -> float:
        with pause_deadlines():
            await asyncio.sleep(1)
        async with deadline(10.0) as clock:
            with pause_deadlines():
                await asyncio.sleep(20)
                with pause_deadlines():
                    await asyncio.sleep(20)
            await asyncio.sleep(3)
        with pause_deadlines():  # of nothing: that deadline is over
            await asyncio.sleep(1)
        return clock.waited_s

    assert run(scenario()) == 40.0


def test_who_is_cancelled_while_the_clock_stands_still_leaves_as_ever() -> None:
    async def scenario() -> None:
        async def waits() -> None:
            async with deadline(10.0):
                with pause_deadlines():
                    await asyncio.Event().wait()

        task = asyncio.create_task(waits())
        await asyncio.sleep(100)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario())


def test_who_cleans_up_after_a_deadline_may_wait_too_and_is_late_all_the_same() -> None:
    async def scenario() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with deadline(10.0):
                try:
                    await asyncio.sleep(20)
                finally:
                    with pause_deadlines():
                        await asyncio.sleep(5)
        return asyncio.get_running_loop().time() - began

    assert run(scenario()) == 15.0


def test_two_tasks_of_an_episode_that_wait_at_the_same_time_stop_it_until_the_last_goes_on() -> None:
    async def scenario() -> float:
        async def waits(seconds: float) -> None:
            with pause_deadlines():
                await asyncio.sleep(seconds)

        async with deadline(10.0) as clock:
            await asyncio.gather(waits(20), waits(100))
            await asyncio.sleep(9)
        return clock.ran_s

    assert run(scenario()) == 9.0


def test_a_deadline_within_a_deadline_stands_still_with_it() -> None:
    async def scenario() -> tuple[float, float]:
        async with deadline(10.0) as outer:
            async with deadline(5.0) as inner:
                with pause_deadlines():
                    await asyncio.sleep(100)
                await asyncio.sleep(4)
            await asyncio.sleep(5)
        return outer.ran_s, inner.waited_s

    assert run(scenario()) == (9.0, 100.0)


def test_a_task_that_outlives_its_deadline_ends_its_wait_in_peace() -> None:
    async def scenario() -> str:
        async def waits() -> str:
            with pause_deadlines():
                await asyncio.sleep(100)
            return "done"

        async with deadline(10.0):
            task = asyncio.create_task(waits())
            await asyncio.sleep(1)
        return await task

    assert run(scenario()) == "done"


def test_what_is_cut_has_the_time_of_its_deadline_and_as_much_as_it_needs_to_end() -> None:
    async def scenario() -> tuple[float, float]:
        over = asyncio.Event()
        async with deadline(10.0) as clock:
            with cut_at_deadline(over.set):
                await asyncio.sleep(4)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    with cut_at_deadline(over.set):
                        await over.wait()
                        cut_s = clock.ran_s
                        await asyncio.sleep(GRACE_S)
            return cut_s, clock.ran_s

    assert run(scenario()) == (10.0, 24.0)


@pytest.mark.parametrize("second", [pause_deadlines, lambda: cut_at_deadline(lambda: None)])
def test_what_would_move_the_deadline_of_a_wait_that_it_cuts_is_refused(second: Any) -> None:
    """Else the second is cut `GRACE_S` late, and where it ends first, the other is no longer cut but late."""

    async def scenario() -> None:
        async def waits() -> None:
            with second():
                await asyncio.sleep(1)

        async with deadline(10.0):
            with cut_at_deadline(lambda: None):
                with pytest.raises(AssertionError):
                    await asyncio.gather(waits())
                await asyncio.sleep(5)
            await waits()

    run(scenario())


def test_what_can_be_cut_is_stopped_from_outside_and_gets_the_rest_of_its_time() -> None:
    async def scenario() -> tuple[float, float]:
        over = asyncio.Event()
        async with deadline(10.0) as clock:
            with cut_at_deadline(over.set) as cut:
                assert cut is clock
                await asyncio.sleep(4)
                cut.stop()
                await asyncio.sleep(1000)
                cut.go_on()
                await over.wait()
                return clock.ran_s, clock.waited_s

    assert run(scenario()) == (10.0, 1000.0)


def test_what_ends_while_its_clock_is_stopped_leaves_the_deadline_as_it_was() -> None:
    async def scenario() -> float:
        try:
            async with deadline(10.0) as clock:
                with cut_at_deadline(lambda: None) as cut:
                    assert cut is not None
                    await asyncio.sleep(4)
                    cut.stop()
                    await asyncio.sleep(100)
                cut.go_on()
                await asyncio.sleep(50)
        except TimeoutError:
            return clock.ran_s
        raise AssertionError

    assert run(scenario()) == 10.0


def test_what_was_cut_before_its_clock_was_stopped_still_ends() -> None:
    async def scenario() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with deadline(10.0):
                with cut_at_deadline(lambda: None) as cut:
                    assert cut is not None
                    await asyncio.sleep(15)
                    cut.stop()
                    await asyncio.sleep(1000)
        return asyncio.get_running_loop().time() - began

    assert run(scenario()) == 10.0 + GRACE_S
