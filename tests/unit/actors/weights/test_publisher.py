"""How a version reaches engines that are late, wrong or dead, over fake actors; and one that reaches nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.pool import RolloutPool
from actors.weights.distributor import Superseded
from actors.weights.publisher import Pace, WeightPublisher
from actors.worker_registry import State, WorkerRegistry
from rlsys.errors import RunFailed
from rlsys.system.weight_folder import WeightManifest, WeightsRejected
from rlsys.types import Ticket
from tests.fakes.fake_ray import FakeRay
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import LIMIT, OPTIONS, PLAY, FakeDistributor, Script, refused, run, until, version
from tests.makers.made import ticket

pytestmark = pytest.mark.usefixtures("fake_ray")


class Gate:
    """Holds the loads of some workers until the test opens it."""

    def __init__(self, *names: str) -> None:
        self.names, self.opened = set(names), asyncio.Event()

    async def load(self, worker: Any, version: int) -> None:
        if worker.name in self.names:
            await self.opened.wait()


def test_a_version_reaches_every_engine_and_older_ones_are_tidied_up() -> None:
    distributor = FakeDistributor()

    async def scenario(pool: RolloutPool) -> None:
        arrivals = await pool.publisher.publish(version(1))
        assert [arrival.delivery.version for arrival in arrivals] == [1, 1, 1]
        assert (distributor.kept, pool.publisher.carried) == ([1], (3, 0.5))

    run(Script(), scenario, workers=3, distributor=distributor)
    assert distributor.stops == 1


def test_a_late_engine_serves_nothing_old_and_joins_when_it_has_come() -> None:
    script = Script()

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        gate = Gate("w1")
        script.load = gate.load
        arrivals = await pool.publisher.publish(version(2))
        assert len(arrivals) == 1 and pool.workers[1].state is State.STALE
        groups = [await pool.run(ticket(number), PLAY, lambda _: None) for number in range(3)]
        assert {name for name, _ in script.played} == {"w0"} and len(groups) == 3
        gate.opened.set()
        await until(lambda: pool.workers[1].state is State.READY)
        assert pool.workers[1].arrival.delivery.version == 2  # type: ignore[union-attr]

    run(script, scenario, workers=2, publish_deadline_s=0.01)


@pytest.mark.parametrize("workers", [3, 4])
def test_when_most_are_late_the_run_waits_for_half_of_them_and_not_for_the_first(workers: int) -> None:
    script = Script()

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        early, late = Gate("w1"), Gate("w2", "w3")

        async def load(worker: Any, number: int) -> None:
            await early.load(worker, number)
            await late.load(worker, number)

        script.load = load
        publishing = asyncio.create_task(pool.publisher.publish(version(2)))
        await until(lambda: pool.workers[-1].state is State.STALE and pool.workers[0].state is State.READY)
        await asyncio.sleep(0.01)
        assert not publishing.done()
        early.opened.set()
        assert len(await publishing) == 2
        late.opened.set()

    run(script, scenario, workers=workers, publish_deadline_s=0.01)


def test_the_start_up_check_waits_for_every_engine() -> None:
    """One that ignores deliveries has the true weights that come next: only the noise tells."""
    script = Script()

    async def scenario(pool: RolloutPool) -> None:
        gate = Gate("w2")
        script.load = gate.load
        publishing = asyncio.create_task(pool.publisher.publish(version(-1)))
        await until(lambda: [worker.state for worker in pool.workers[:2]] == [State.READY] * 2)
        await asyncio.sleep(0.05)  # well after the deadline of all
        assert not publishing.done()
        gate.opened.set()
        assert len(await publishing) == 3

    run(script, scenario, workers=3, publish_deadline_s=0.01)


def test_a_version_that_is_gone_is_waited_for_until_it_is_sent_again() -> None:
    async def brings(published: WeightManifest) -> None:
        if published is first.published:
            refused()

    first = version(1)

    async def scenario(pool: RolloutPool) -> None:
        publisher = pool.publisher
        publishing = asyncio.create_task(publisher.publish(first))
        await until(lambda: publisher.gone.is_set())
        assert publisher.stranded and publisher.lost == (1, "no way there") and not publishing.done()
        publisher.again(version(1))
        assert await publishing and not publisher.stranded and not publisher.gone.is_set()  # one serves: enough
        await until(lambda: all(worker.state is State.READY for worker in pool.workers))
        assert pool.restarts == {"w0": 0, "w1": 0}

    run(Script(), scenario, workers=2, distributor=FakeDistributor(brings))


def test_who_needs_a_version_waits_no_longer_than_a_worker_serves_with_it() -> None:
    turns: list[int] = []

    async def brings(published: WeightManifest) -> None:
        turns.append(published.version)
        if len(turns) > 2:
            refused()

    script = Script()

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        needs = asyncio.create_task(asyncio.sleep(3600))
        waiting = asyncio.create_task(pool.publisher.unless_stranded(needs))
        for worker in pool.workers:  # each comes back, and finds the version nowhere
            assert not waiting.done()
            pool.mark_dead(worker, worker.handle, RunFailed("killed"))
            await until(lambda worker=worker: worker.life.restarts == 1 and worker.state is State.STALE)
        await waiting
        assert pool.publisher.stranded
        needs.cancel()

    run(script, scenario, workers=2, distributor=FakeDistributor(brings))


def test_one_that_a_version_does_not_reach_is_left_out_and_the_others_go_on() -> None:
    async def brings(published: WeightManifest) -> None:
        if published.version == 2:
            turns.append(0)
            if len(turns) == 1:
                refused()

    turns: list[int] = []

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        assert len(await pool.publisher.publish(version(2))) == 1
        assert sorted(worker.state for worker in pool.workers) == [State.READY, State.STALE]
        assert len(await pool.publisher.publish(version(3))) == 2

    run(Script(), scenario, workers=2, distributor=FakeDistributor(brings))


def test_an_engine_that_computes_something_else_is_loaded_twice_and_then_ends_the_run() -> None:
    loads: list[int] = []

    async def load(worker: Any, number: int) -> None:
        loads.append(number)

    async def scenario(pool: RolloutPool) -> None:
        with pytest.raises(RunFailed, match="w0 does not compute what the learner computes"):
            await pool.publisher.publish(version(1, expected=2.0))
        assert loads == [1, 1]

    run(Script(load=load), scenario)


def test_an_engine_may_differ_by_as_much_as_the_limit_says() -> None:
    async def scenario(pool: RolloutPool) -> None:
        (arrival,) = await pool.publisher.publish(version(1, expected=LIMIT))
        assert arrival.gap_mean == LIMIT

    run(Script(), scenario)


def test_a_second_load_that_is_right_is_enough() -> None:
    async def load(worker: Any, number: int) -> None:
        script.said, script.load = (2.0, None) if loads else (0.0, load)
        loads.append(number)

    loads: list[int] = []
    script = Script(load=load)

    async def scenario(pool: RolloutPool) -> None:
        (arrival,) = await pool.publisher.publish(version(1, expected=2.0))
        assert (arrival.gap_mean, loads) == (0.0, [1, 1])

    run(script, scenario)


def test_a_worker_that_dies_while_its_weights_are_brought_is_asked_for_nothing_more(fake_ray: FakeRay) -> None:
    loaded: list[Any] = []

    async def load(worker: Any, number: int) -> None:
        loaded.append((worker, number))

    async def brings(published: WeightManifest) -> None:
        if published.version == 2 and not died.is_set():
            died.set()
            pool_of[0].mark_dead(pool_of[0].workers[0], pool_of[0].workers[0].handle, RuntimeError("died"))

    died, pool_of = asyncio.Event(), []

    async def scenario(pool: RolloutPool) -> None:
        pool_of.append(pool)
        await pool.publisher.publish(version(1))
        (arrival,) = await pool.publisher.publish(version(2))
        assert arrival.delivery.version == 2
        first, second = (handle.actor for handle in fake_ray.handles)
        assert [entry for entry in loaded if entry[0] is first] == [(first, 1)]
        assert [entry for entry in loaded if entry[0] is second] == [(second, 2)]

    run(Script(load=load), scenario, distributor=FakeDistributor(brings))


def test_a_death_by_refused_weights_makes_nobody_a_suspect() -> None:
    async def load(worker: Any, number: int) -> None:
        if number == 2 and script.starts["w0"] == 1:
            await until(lambda: len(script.played) == 2)
            raise WeightsRejected("not whole")

    async def play(worker: Any, ticket: Ticket) -> None:
        if script.starts["w0"] == 1:
            await asyncio.Event().wait()
        together.append(len(pool_of[0].workers[0].playing))
        await asyncio.sleep(0.002)

    script, together, pool_of = Script(load=load, play=play), [], []  # type: ignore[var-annotated]

    async def scenario(pool: RolloutPool) -> None:
        pool_of.append(pool)
        await pool.publisher.publish(version(1))
        playing = [asyncio.create_task(pool.run(ticket(number), PLAY, lambda _: None)) for number in range(2)]
        await pool.publisher.publish(version(2))
        await asyncio.gather(*playing)
        assert together == [2, 2] and pool.restarts == {"w0": 1}

    run(script, scenario)


def test_a_worker_that_comes_back_holds_the_newest_version_before_it_plays() -> None:
    async def play(worker: Any, ticket: Ticket) -> None:
        versions.append(worker.version)
        if script.starts["w0"] == 1:
            worker.die()

    versions: list[int] = []
    script = Script(play=play)

    async def scenario(pool: RolloutPool) -> None:
        for number in (1, 2):
            await pool.publisher.publish(version(number))
        await pool.run(ticket(0), PLAY, lambda _: None)
        assert versions == [2, 2]

    run(script, scenario)


@pytest.mark.parametrize("loaded", [False, True], ids=["while it loads", "after it had loaded"])
def test_an_engine_that_restarts_under_a_delivery_is_stale_until_it_was_given_that_version_itself(loaded: bool) -> None:
    """What an earlier incarnation was given says nothing of the next one."""
    others, again = Gate("w0"), Gate("w1")
    deliveries: list[tuple[int, int]] = []  # to w1: which incarnation, and the version

    async def load(worker: Any, number: int) -> None:
        starts = script.starts[worker.name]
        if number == 2 and worker.name == "w0":
            await others.load(worker, number)
        if number == 2 and worker.name == "w1":
            if starts == 1 and not loaded:
                worker.die()
            if starts == 2:
                await again.load(worker, number)
        if worker.name == "w1":
            deliveries.append((starts, number))

    script = Script(load=load)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        worker = pool.workers[1]
        publishing = asyncio.create_task(pool.publisher.publish(version(2)))
        if loaded:
            await until(lambda: worker.arrival is not None and worker.arrival.delivery.version == 2)
            pool.mark_dead(worker, worker.handle, RuntimeError("died"))
        await until(lambda: script.starts["w1"] == 2 and worker.state is State.STALE)
        others.opened.set()
        await until(lambda: pool.workers[0].state is State.READY and pool.workers[0].arrival.delivery.version == 2)  # type: ignore[union-attr]
        await pool.run(ticket(0), PLAY, lambda _: None)
        assert {name for name, _ in script.played} == {"w0"} and worker.state is State.STALE
        again.opened.set()
        await publishing
        await until(lambda: worker.state is State.READY)
        assert deliveries[-1] == (2, 2) and (2, 1) not in deliveries

    run(script, scenario, workers=2)


def test_a_delivery_to_a_worker_that_died_meanwhile_is_over() -> None:
    brought: list[State] = []

    async def brings(published: WeightManifest) -> None:
        if published.version == 2:
            worker = pool_of[0].workers[0]
            brought.append(worker.state)
            if len(brought) == 1:
                pool_of[0].mark_dead(worker, worker.handle, RuntimeError("died"))
                raise Superseded

    pool_of: list[RolloutPool] = []

    async def scenario(pool: RolloutPool) -> None:
        pool_of.append(pool)
        await pool.publisher.publish(version(1))
        await pool.publisher.publish(version(2))
        assert brought == [State.READY, State.STALE]  # and not once more for the dead one

    run(Script(), scenario, distributor=FakeDistributor(brings))


def test_a_version_that_arrives_after_the_next_was_published_opens_nothing() -> None:
    gate, states = Gate("w0"), []

    async def load(worker: Any, number: int) -> None:
        if number == 2:
            await gate.load(worker, number)
        if number == 3 and worker.name == "w0":
            states.append(pool_of[0].workers[0].state)

    script = Script(load=load)
    pool_of: list[RolloutPool] = []

    async def scenario(pool: RolloutPool) -> None:
        pool_of.append(pool)
        await pool.publisher.publish(version(1))
        await pool.publisher.publish(version(2))
        publishing = asyncio.create_task(pool.publisher.publish(version(3)))
        await until(lambda: pool.publisher.current == version(3))
        gate.opened.set()
        await publishing
        await until(lambda: pool.workers[0].state is State.READY)
        assert states == [State.STALE]

    run(script, scenario, workers=2, publish_deadline_s=0.01)


def test_the_first_delivery_of_a_large_model_gets_what_a_slow_link_takes() -> None:
    assert Pace().deadline_s(60.0, 15_200_000_000) == 3 * 152.0
    assert Pace().deadline_s(60.0, 100_000_000) == 60.0


def test_later_ones_get_three_times_what_the_last_one_took_and_no_less_than_the_key_says() -> None:
    pace = Pace()
    pace.note(65_500_000_000, 62.0)
    assert round(pace.deadline_s(60.0, 65_500_000_000), 6) == 186.0
    pace.note(65_500_000_000, 5.0)
    assert pace.deadline_s(60.0, 65_500_000_000) == 60.0
    pace.note(0, 5.0)  # nothing that a rate could be read from
    assert pace.deadline_s(60.0, 65_500_000_000) == 60.0


def test_ranks_write_into_the_folder_of_nodes_that_have_a_store() -> None:
    distributor = FakeDistributor()

    async def scenario(pool: RolloutPool) -> None:
        await asyncio.sleep(0)  # its watch begins
        folder: object = await pool.publisher.folder_on(["n1", "n2"])
        assert folder == "their folder" and distributor.ensured[-1] == ["n1", "n2"]
        assert pool.publisher.carried == (3, 0.5)

    run(Script(), scenario, distributor=distributor)


def test_where_nothing_is_published_nothing_crosses_the_network() -> None:
    assert WeightPublisher(WorkerRegistry([], 1), OPTIONS, None, lambda *_: None).carried == (0, 0.0)
