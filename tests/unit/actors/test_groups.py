"""A group that is brought to the driver: from where it lies, and once more where it is lost on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from actors.pool import RolloutPool
from rlsys.errors import RunFailed
from rlsys.types import Failure, Group, Ticket
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import PLAY, FakeDistributor, Script, run, version
from tests.makers.made import group as made_group
from tests.makers.made import ticket

pytestmark = pytest.mark.usefixtures("fake_ray")


async def gone() -> None:
    raise RunFailed("its node is gone")


async def never() -> None:
    await asyncio.Event().wait()


def losing(pool: RolloutPool, times: int, lost: Any = gone) -> None:
    """What is played is lost on its way to the driver, so often."""
    played, left = pool.run, [lost] * times

    async def play(*given: Any) -> Any:
        group = await played(*given)
        if not left:
            return group
        await group.source
        return replace(group, source=left.pop()())

    pool.run = play  # type: ignore[method-assign]


def test_a_group_comes_to_the_driver_as_it_was_played() -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        group = await pool.group(ticket(4), PLAY, lambda _: None)
        assert (group.ticket, group.worker, len(group.trajectories)) == (ticket(4), "w0", PLAY.group_size)
        local_group = made_group(ticket(5))
        played = replace(await pool.run(ticket(5), PLAY, lambda _: None), source=local_group)
        assert await pool.whole(played) is local_group

    run(Script(), scenario)


@pytest.mark.parametrize("lost", [gone, never])
def test_one_that_is_lost_on_the_way_is_played_again_with_a_new_attempt(lost: Any) -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        losing(pool, 2, lost)
        group = await pool.group(ticket(4), PLAY, lambda _: None)
        assert group.ticket == replace(ticket(4), attempt=2) and pool.restarts == {"w0": 0}

    run(Script(), scenario, call_timeout_s=0.02)


def test_one_that_is_lost_time_and_again_is_a_typed_failure_of_the_infrastructure() -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        losing(pool, 9)
        group: Group = await pool.group(ticket(4), PLAY, lambda _: None)
        rewards = [trajectory.reward for trajectory in group.trajectories]
        assert len(rewards) == PLAY.group_size and all(isinstance(reward, Failure) for reward in rewards)
        assert rewards[0].kind == "infra" and group.ticket.attempt == 3  # type: ignore[union-attr]

    script = Script()
    run(script, scenario, infra_attempts=3)
    assert len(script.played) == 3


def test_ranks_on_other_nodes_are_ready_for_what_they_send() -> None:
    class Sends(FakeDistributor):
        async def ensure(self, nodes: Any) -> None:
            ensured.append(list(nodes))

    ensured: list[list[str]] = []

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        assert await pool.publisher.folder_on(["a", "b"]) == "their folder"

    run(Script(), scenario, distributor=Sends())
    assert ensured == [["here"], ["a", "b"]]  # the worker's own node, then those of the ranks


def test_a_worker_that_does_not_hear_of_the_services_is_dead_and_the_others_hear() -> None:
    heard: list[str] = []

    def connect(worker: Any, addresses: Any) -> None:
        if addresses and worker.name == "w0" and script.starts["w0"] == 1:
            raise RuntimeError("deaf")
        heard.extend([worker.name] if addresses else [])

    script = Script(connect=connect)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        await pool.connect({"judge": "http://here"})
        while heard != ["w1", "w0"]:
            await asyncio.sleep(0.001)
        assert pool.restarts == {"w0": 1, "w1": 0}

    run(script, scenario, workers=2)


def test_a_retry_is_told_with_the_ticket_that_is_played_next() -> None:
    async def hook(worker: Any, asked: Ticket) -> None:
        attempts.append(asked.attempt)
        if script.starts["w0"] == 1:
            worker.die()
            await asyncio.sleep(0)

    attempts: list[int] = []
    retried: list[Ticket] = []
    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        group = await pool.group(ticket(4), PLAY, retried.append)
        assert attempts == [0, 1] and retried == [group.ticket] == [replace(ticket(4), attempt=1)]

    run(script, scenario)


def test_a_finished_group_gives_a_worker_all_its_restarts_again() -> None:
    async def hook(worker: Any, asked: Ticket) -> None:
        if asked.sequence:
            worker.die()
            await asyncio.sleep(0)

    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        await pool.run(ticket(0), PLAY, lambda _: None)
        with pytest.raises(RunFailed, match="w0 was restarted 5 times without finishing a group"):
            await pool.run(ticket(1), PLAY, lambda _: None)
        assert script.starts["w0"] == 1 + 5

    run(script, scenario, infra_attempts=99)
