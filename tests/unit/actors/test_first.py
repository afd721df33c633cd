"""An evaluation beside training does not wait behind it: neither for a place on a worker nor for a seat."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from actors.pool import RolloutPool
from actors.seats import Seats
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import PLAY, Script, run, version
from tests.makers.made import ticket
from tests.unit.envs.services.test_guard import play


def test_who_goes_first_is_seated_before_all_others_and_each_kind_in_order() -> None:
    seated: list[str] = []

    async def sit(seats: Seats, name: str, priority: bool) -> None:
        await seats.acquire(priority=priority)
        seated.append(name)
        await asyncio.sleep(1)
        seats.release()

    async def scenario() -> None:
        seats = Seats(2)
        names = ["a", "b", "c", "d", "E", "F", "g"]
        tasks = [asyncio.ensure_future(sit(seats, name, name.isupper())) for name in names]
        await asyncio.sleep(0.5)
        tasks[2].cancel()  # it waits
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(sit(seats, name, False) for name in "xyz"))

    play(scenario())
    assert seated == ["a", "b", "E", "F", "d", "g", "x", "y", "z"]


def test_a_seat_that_comes_as_its_caller_goes_is_not_lost() -> None:
    async def scenario() -> None:
        seats = Seats(1)
        await seats.acquire()
        waiting = asyncio.ensure_future(seats.acquire())
        await asyncio.sleep(1)
        seats.release()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(seats.acquire(), 60)

    play(scenario())


@pytest.mark.usefixtures("fake_ray")
def test_its_groups_get_the_next_places() -> None:
    script = Script()

    async def hook(worker: object, ticket: object) -> None:
        await asyncio.sleep(0.002)

    script.play = hook  # type: ignore[assignment]

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        plans = [(sequence, replace(PLAY, priority=sequence >= 100)) for sequence in (0, 1, 2, 3, 100, 101)]
        await asyncio.gather(*(pool.run(ticket(sequence), plan, lambda _: None) for sequence, plan in plans))

    run(script, scenario, in_flight=2)
    assert [sequence for _, sequence in script.played] == [0, 100, 101, 1, 2, 3]


@pytest.mark.parametrize(("priority", "ended"), [(True, 896.0), (False, 1344.0)])
def test_an_evaluation_on_full_engines_waits_for_one_answer_of_training_and_not_for_all_in_line(
    priority: bool, ended: float
) -> None:
    """A third of 384 answers on one of three engines of a 7B, whose 128 seats are taken and as many more wait; each
    takes 448 s. It has 3 x 1,792 s; after 900 s it was ended, and what it lacked were its long answers."""

    async def scenario() -> float:
        seats = Seats(128)

        async def answer(priority: bool = False) -> float:
            await seats.acquire(priority=priority)
            await asyncio.sleep(448)
            seats.release()
            return asyncio.get_running_loop().time()

        training = [asyncio.ensure_future(answer()) for _ in range(256)]
        await asyncio.sleep(0)
        evaluated = await asyncio.gather(*(answer(priority) for _ in range(128)))
        await asyncio.gather(*training)
        return max(evaluated)

    assert play(scenario()) == pytest.approx(ended)
