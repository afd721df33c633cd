"""Slots: the staleness bound holds by admission, whatever finishes when, and nothing is thrown away."""

import asyncio
import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlsys.buffer import SlotBuffer, count_missing
from rlsys.errors import RunFailed
from rlsys.summaries import refer_to
from rlsys.types import Ticket
from tests.makers.made import group, ticket


async def begun(buffer: SlotBuffer) -> int:
    version = await buffer.admit()
    assert version is not None
    return version


async def simulate(
    groups_per_step: int, max_lag: int, steps: int, seed: int, signal: float, late_release: bool, spare: int = 0
) -> list[list[Ticket]]:
    """The driver's loop with groups of random length. Asserts the bound; returns the tickets of each step."""
    rng = random.Random(seed)
    buffer = SlotBuffer(
        groups_per_step=groups_per_step,
        max_policy_lag=max_lag,
        live_version=0,
        total=steps * groups_per_step,
        spare=spare,
    )
    trained: list[list[Ticket]] = []
    version = live = 0

    async def play(started: Ticket) -> None:
        for _ in range(rng.choice([0, 1, 2, 3, 50])):  # a long tail
            await asyncio.sleep(0)
        dull = bool(spare) and rng.random() < 0.6
        sparing.update([started.sequence] * dull)
        await buffer.finish(group(started), signal=not dull)

    sparing: set[int] = set()  # those that give their places away while there are spare ones
    tasks: list[asyncio.Task[None]] = []

    async def feed() -> None:
        for sequence in itertools.count():
            start = await buffer.admit()
            if start is None:
                return
            started = ticket(sequence, start_version=start)
            buffer.start(started)
            assert len(buffer.open_tickets) <= groups_per_step * (1 + max_lag)
            tasks.append(asyncio.create_task(play(started)))

    feeder = asyncio.create_task(feed())
    pending: tuple[int, int] | None = None
    for _ in range(steps):
        taking = asyncio.create_task(buffer.take(version))
        if pending is not None:  # the release of the step before comes while this one already waits
            await asyncio.sleep(0)
            await buffer.release(pending[0], live_version=pending[1])
        taken = await taking
        buffer.mark_trained()
        assert groups_per_step <= len(taken) <= groups_per_step + spare
        keen = [g.ticket for g in taken if g.ticket.sequence not in sparing]
        assert max((version - started.start_version for started in keen), default=0) <= max_lag
        assert [g.ticket.sequence for g in taken] == sorted(g.ticket.sequence for g in taken)
        trained.append([g.ticket for g in taken])
        version += rng.random() < signal  # a step without signal publishes nothing
        live = version
        pending = (groups_per_step, live)
        if not late_release:
            await buffer.release(*pending[:1], live_version=live)
            pending = None
    await feeder
    await asyncio.gather(*tasks)
    return trained


@given(
    groups=st.integers(1, 5),
    lag=st.integers(0, 3),
    steps=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    signal=st.sampled_from([1.0, 0.5]),
    late=st.booleans(),
    spare=st.integers(0, 6),
)
@settings(max_examples=150, deadline=None)
@example(groups=1, lag=3, steps=6, seed=3, signal=1.0, late=True, spare=0)  # overtaken: too many due at once later
def test_lag_never_exceeds_the_bound_and_every_group_is_taken_once(
    groups: int, lag: int, steps: int, seed: int, signal: float, late: bool, spare: int
) -> None:
    taken = asyncio.run(asyncio.wait_for(simulate(groups, lag, steps, seed, signal, late, spare), 60))
    sequences = sorted(t.sequence for step in taken for t in step)
    assert sequences == list(range(len(sequences)))
    assert len(sequences) >= groups * steps


def test_a_slow_group_is_waited_for_exactly_when_the_bound_would_break() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=1, max_policy_lag=1, live_version=0, total=3)
        slow, fast = [ticket(n, start_version=await begun(buffer)) for n in range(2)]
        buffer.start(slow)
        buffer.start(fast)
        await buffer.finish(group(fast))
        assert [g.ticket for g in await buffer.take(0)] == [fast]  # the slow one may still be trained at version 1
        buffer.mark_trained()
        await buffer.release(1, live_version=1)
        newer = ticket(2, start_version=await begun(buffer))
        buffer.start(newer)
        await buffer.finish(group(newer))
        waiting = asyncio.create_task(buffer.take(1))  # the slow one is at lag 1 now: its last chance
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        await buffer.finish(group(slow))
        assert [g.ticket for g in await waiting] == [slow]
        buffer.mark_trained()
        assert buffer.open_tickets == [newer]

    asyncio.run(scenario())


def test_what_a_step_still_lacks_counts_the_early_groups_that_it_waits_for() -> None:
    lacks = lambda running, finished: count_missing(1, running, finished, 4, 1)  # noqa: E731  version 1, 4 a step, lag 1
    assert lacks([1, 1, 1], [1]) == 3
    assert lacks([1], [1, 1, 1, 1, 1, 1, 1]) == 0
    assert lacks([0, 0], [1, 1, 1, 1, 1]) == 2  # enough, but two started at version 0, for which it is the last step

    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=0, total=2)
        for sequence in range(2):
            started = ticket(sequence, start_version=await begun(buffer))
            buffer.start(started)
            assert buffer.count_ready(0) == sequence
            await buffer.finish(group(started))
        assert buffer.count_ready(0) == 2

    asyncio.run(scenario())


def test_a_step_that_can_never_be_filled_is_an_error_and_no_wait() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=0, total=1)
        buffer.start(ticket(0, start_version=await begun(buffer)))
        with pytest.raises(RunFailed, match="only 1 groups are left for a step of 2"):
            await buffer.take(0)

    asyncio.run(scenario())


def test_groups_in_the_steppers_hands_are_open_until_they_are_trained() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=1, max_policy_lag=0, live_version=0, total=1)
        started = ticket(0, start_version=await begun(buffer))
        buffer.start(started)
        await buffer.finish(group(started))
        await buffer.take(0)
        assert buffer.open_tickets == [started]
        buffer.mark_trained()
        assert buffer.open_tickets == []

    asyncio.run(scenario())


def test_lag_zero_starts_nothing_before_the_new_weights_are_live() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=0, total=4)
        for sequence in range(2):
            started = ticket(sequence, start_version=await begun(buffer))
            buffer.start(started)
            await buffer.finish(group(started))
        await buffer.take(0)
        admission = asyncio.create_task(buffer.admit())
        await asyncio.sleep(0)
        assert not admission.done()
        await buffer.release(2, live_version=1)
        assert await admission == 1

    asyncio.run(scenario())


def test_a_group_without_signal_gives_its_place_away_at_once_and_goes_along_with_the_next_step() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=1, max_policy_lag=0, live_version=0, total=1, spare=1)
        for sequence in range(2):  # with lag 0 the second could not start before the first is trained
            started = ticket(sequence, start_version=await begun(buffer))
            buffer.start(started)
            await buffer.finish(group(started), signal=sequence > 0)
        assert [g.ticket.sequence for g in buffer.dull] == [0]
        assert [t.sequence for t in buffer.open_tickets] == [1]
        assert [g.ticket.sequence for g in await buffer.take(0)] == [0, 1]
        assert await buffer.admit() is None

    asyncio.run(scenario())


def test_no_more_than_the_spare_places_are_given_away() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=0, total=2, spare=1)
        for sequence in range(3):
            started = ticket(sequence, start_version=await begun(buffer))
            buffer.start(started)
            await buffer.finish(group(started), signal=False)
        assert [g.ticket.sequence for g in await buffer.take(0)] == [0, 1, 2]

    asyncio.run(scenario())


def test_groups_that_were_lost_run_again_and_the_others_wait_for_them() -> None:
    async def scenario() -> None:
        buffer = SlotBuffer(groups_per_step=2, max_policy_lag=0, live_version=0, total=2, spare=1)
        for sequence in range(3):
            assert await buffer.admit() == 0
            buffer.start(ticket(sequence, start_version=0))
            await buffer.finish(refer_to(group(ticket(sequence, start_version=0))), signal=sequence != 0)
        assert await buffer.admit() is None
        first = await buffer.take(0)
        assert [ref.ticket.sequence for ref in first] == [0, 1, 2]  # the first had given its place away
        again = await buffer.give_back(first, {2})
        assert [(item.sequence, item.attempt) for item in again] == [(2, 1)]
        assert [item.sequence for item in buffer.open_tickets] == [1, 2]
        assert [ref.ticket.sequence for ref in buffer.dull] == [0]
        taking = asyncio.ensure_future(buffer.take(0))
        await asyncio.sleep(0)
        assert not taking.done()
        await buffer.finish(refer_to(group(again[0])), signal=False)  # too late to give its place away
        assert [(ref.ticket.sequence, ref.ticket.attempt) for ref in await taking] == [(0, 0), (1, 0), (2, 1)]

    asyncio.run(scenario())
