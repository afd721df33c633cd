"""Learner and engines on the same cards: never both, nobody waits for ever, and no turn is changed without a need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack

import pytest

from rlsys.alternating_cards import AlternatingCards, Side
from tests.unit.envs.services.test_guard import play as run  # time itself is the test's

LEARNER, ENGINES = Side.LEARNER, Side.ENGINES


class Cards:
    """Writes down who gets them, which takes a second, and fails where it is told to."""

    def __init__(self) -> None:
        self.both, self.given = AlternatingCards(), list[Side]()
        self.on: Side | None = None
        self.broken = False
        self.both.begin(self.give)

    async def give(self, side: Side) -> None:
        self.on = None
        await asyncio.sleep(1.0)
        if self.broken:
            raise ValueError("a rank died")
        self.on = side
        self.given.append(side)

    async def work(self, side: Side, seconds: float = 0.0) -> None:
        async with self.both.hold(side):
            await asyncio.sleep(seconds)
            assert self.on is side


def test_without_shared_cards_every_turn_is_granted_at_once() -> None:
    async def scenario() -> dict[str, float]:
        shared = AlternatingCards()
        async with shared.hold(LEARNER), shared.hold(ENGINES), shared.wish():
            return shared.row()

    assert run(scenario()) == {}


def test_a_side_keeps_the_cards_until_the_other_one_needs_them() -> None:
    async def scenario() -> tuple[list[Side], dict[str, float]]:
        cards = Cards()
        for side in (LEARNER, LEARNER, ENGINES, ENGINES, LEARNER):
            await cards.work(side)
        return cards.given, cards.both.row()

    assert run(scenario()) == ([LEARNER, ENGINES, LEARNER], {"placement/change_s": 3.0})


def test_the_other_side_waits_until_the_last_hold_is_over() -> None:
    async def scenario() -> float:
        cards = Cards()
        learner = [asyncio.create_task(cards.work(LEARNER, seconds)) for seconds in (5.0, 20.0)]
        await asyncio.sleep(2.0)
        await cards.work(ENGINES)
        assert all(task.done() for task in learner)
        return asyncio.get_running_loop().time()

    assert run(scenario()) == 22.0  # a change, the longer hold, a change


def test_a_side_may_hold_them_inside_its_own_hold_though_the_other_one_waits() -> None:
    async def scenario() -> list[Side]:
        cards = Cards()
        async with cards.both.hold(LEARNER):
            engines = asyncio.create_task(cards.work(ENGINES))
            await asyncio.sleep(5.0)
            await cards.work(LEARNER)
        await engines
        return cards.given

    assert run(scenario()) == [LEARNER, ENGINES]


def test_a_wish_gives_the_engines_every_moment_that_the_learner_leaves() -> None:
    async def scenario() -> list[Side]:
        cards = Cards()
        await cards.work(LEARNER)
        async with cards.both.wish():
            assert cards.on is ENGINES
            await cards.work(LEARNER)
            assert cards.on is ENGINES
        await cards.work(LEARNER)
        assert cards.on is LEARNER
        return cards.given

    assert run(scenario()) == [LEARNER, ENGINES, LEARNER, ENGINES, LEARNER]


def test_within_one_hold_of_the_learner_a_wish_waits_for_its_end() -> None:
    async def scenario() -> list[Side]:
        cards = Cards()
        async with cards.both.wish(), cards.both.hold(LEARNER):
            await cards.work(LEARNER)
            await cards.work(LEARNER)
        return cards.given

    assert run(scenario()) == [ENGINES, LEARNER, ENGINES]


def test_a_change_that_fails_is_made_again_by_whoever_comes_next() -> None:
    """Half of it may have happened: nobody may take the cards for his because they were his before."""

    async def scenario() -> list[Side]:
        cards = Cards()
        await cards.work(LEARNER)
        cards.broken = True
        with pytest.raises(ValueError, match="a rank died"):
            await cards.work(ENGINES)
        cards.broken = False
        await cards.work(LEARNER)
        return cards.given

    assert run(scenario()) == [LEARNER, LEARNER]


def test_who_fails_with_the_cards_does_not_hand_them_over() -> None:
    async def scenario() -> list[Side]:
        cards = Cards()
        async with cards.both.wish():
            with pytest.raises(ZeroDivisionError):
                async with cards.both.hold(LEARNER):
                    raise ZeroDivisionError
            await cards.work(LEARNER)
        return cards.given

    assert run(scenario()) == [ENGINES, LEARNER, ENGINES]


@pytest.mark.parametrize("cancelled", ["waiting", "changing", "holding"])
def test_who_is_cancelled_leaves_the_cards_to_others(cancelled: str) -> None:
    async def scenario() -> None:
        cards = Cards()
        async with AsyncExitStack() as held:
            if cancelled == "waiting":
                await held.enter_async_context(cards.both.hold(LEARNER))
            task = asyncio.create_task(cards.work(ENGINES, 100.0))
            await asyncio.sleep({"waiting": 5.0, "changing": 0.5, "holding": 5.0}[cancelled])
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for side in (LEARNER, ENGINES):
            await asyncio.wait_for(cards.work(side), 10.0)

    run(scenario())


def test_many_that_come_at_the_same_time_are_all_served() -> None:
    async def scenario() -> set[Side]:
        cards = Cards()
        works: list[Awaitable[None]] = [cards.work(side, 0.1) for side in (LEARNER, ENGINES) * 20]
        async with cards.both.wish():
            await asyncio.wait_for(asyncio.gather(*works), 1000.0)
        return set(cards.given)

    assert run(scenario()) == {LEARNER, ENGINES}
