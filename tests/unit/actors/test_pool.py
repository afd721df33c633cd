"""The pool's rules over fake actors: who is played where, what a death costs whom, and when a run gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import actors.pool
from actors.placement import NoPlace
from actors.pool import QUIET_S, RolloutPool
from actors.specs import EngineFailed
from actors.worker_registry import State
from envs.services.stats import ToolStats
from launch.config.compose import compose
from launch.driver.run.alternate import alternate
from rlsys.alternating_cards import AlternatingCards, Side
from rlsys.errors import LearnerLost, RunFailed
from rlsys.rollout import RolloutPlan
from rlsys.summaries import GroupRef
from rlsys.system.supervisor import MAX_RESTARTS, GaveUp
from rlsys.types import EpisodeEnd, Failure, Ticket
from tests.fakes.fake_ray import FakeRay
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import PLAY, FakeDistributor, Script, make_pool, run, until, version
from tests.makers.made import ticket

pytestmark = pytest.mark.usefixtures("fake_ray")


async def play(pool: RolloutPool, count: int, plan: RolloutPlan = PLAY) -> tuple[list[GroupRef], list[Ticket]]:
    retried: list[Ticket] = []
    groups = await asyncio.gather(*(pool.run(ticket(sequence), plan, retried.append) for sequence in range(count)))
    return list(groups), retried


def failed(groups: list[GroupRef]) -> dict[int, str]:
    """What is said of each that failed, by its sequence."""
    return {
        group.ticket.sequence: summary.reward.detail
        for group in groups
        for summary in group.summaries
        if isinstance(summary.reward, Failure)
    }


def deadly(*sequences: int) -> Callable[[Any, Ticket], Awaitable[None]]:
    """The worker dies when it plays one of these, while all that it was given is under way."""

    async def hook(worker: Any, ticket: Ticket) -> None:
        await asyncio.sleep(0.002)
        if ticket.sequence in sequences:
            worker.die()
        await asyncio.sleep(0.002)

    return hook


def test_one_task_that_kills_its_worker_costs_that_task_alone_and_is_named() -> None:
    script = Script(play=deadly(13))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, retried = await play(pool, 24)
        failures = failed(groups)
        assert set(failures) == {13} and "t:13 of None was alone when its worker ended" in failures[13]
        assert all(group.summaries[0].end is EpisodeEnd.ANSWERED for group in groups if group.ticket.sequence != 13)
        attempts = sorted(group.ticket.attempt for group in groups)
        # The first death costs all of them a start. The second costs its company of five another, but for those that
        # were done by then.
        again = attempts.count(2)
        assert attempts == [1] * (24 - again) + [2] * again and again <= 5 and groups[13].ticket.attempt == 2
        assert len(retried) == 24 + again
        await until(lambda: pool.restarts == {"w0": 3})

    run(script, scenario)


def test_suspects_play_after_all_others_and_never_beside_them() -> None:
    together: list[set[int]] = []
    playing: set[int] = set()

    async def hook(worker: Any, ticket: Ticket) -> None:
        playing.add(ticket.sequence)
        together.append(set(playing))
        try:
            await asyncio.sleep(0.002)
            if script.starts["w0"] == 1:
                worker.die()
        finally:
            playing.discard(ticket.sequence)

    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        first = asyncio.create_task(play(pool, 3))
        await until(lambda: len(script.played) == 3)
        others = [asyncio.create_task(pool.run(ticket(number), PLAY, lambda _: None)) for number in (10, 11)]
        groups, _ = await first
        assert not failed(groups)
        await asyncio.gather(*others)
        assert [{10}, {10, 11}] == [company for company in together if company & {10, 11}][-2:]
        again = together[-3:]  # in companies of two and of one
        assert not any(company & {10, 11} for company in again) and sorted(map(len, again)) == [1, 1, 2]

    run(script, scenario, in_flight=6)


def test_several_deadly_tasks_cost_themselves_alone() -> None:
    script = Script(play=deadly(2, 7, 11))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 16)
        assert set(failed(groups)) == {2, 7, 11}

    run(script, scenario, workers=2)


def test_a_group_that_was_alone_from_the_beginning_has_as_many_starts_as_any() -> None:
    script = Script(play=deadly(0))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, retried = await play(pool, 1)
        assert set(failed(groups)) == {0} and len(retried) == 1
        await until(lambda: pool.restarts == {"w0": 2})

    run(script, scenario, infra_attempts=2)


def test_nobody_is_charged_for_company_even_where_a_group_has_one_start() -> None:
    script = Script(play=deadly(3))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 5)
        assert set(failed(groups)) == {3}

    run(script, scenario, infra_attempts=1)


def test_an_engine_that_fails_is_a_death_like_any_other() -> None:
    async def hook(worker: Any, ticket: Ticket) -> None:
        await asyncio.sleep(0)
        if ticket.sequence == 1 or worker.version is None:
            worker.version = None
            raise EngineFailed("the EngineCore died")

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 4)
        failures = failed(groups)
        assert set(failures) == {1} and "EngineFailed: the EngineCore died" in failures[1]

    run(Script(play=hook), scenario)


def test_a_bug_in_what_is_played_ends_the_run_and_kills_no_worker() -> None:
    async def hook(worker: Any, ticket: Ticket) -> None:
        raise TypeError("a bug")

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        with pytest.raises(RunFailed, match="w0 playing group 0: TypeError: a bug"):
            await play(pool, 1)
        assert pool.restarts == {"w0": 0}

    run(Script(play=hook), scenario)


def test_memory_that_ran_out_is_a_death_and_no_bug() -> None:
    async def hook(worker: Any, ticket: Ticket) -> None:
        if script.starts["w0"] == 1:
            raise MemoryError

    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 1)
        assert not failed(groups) and pool.restarts == {"w0": 1}

    run(script, scenario)


def test_a_worker_that_keeps_dying_without_finishing_a_group_ends_the_run() -> None:
    script = Script(play=deadly(*range(99)))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        with pytest.raises(RunFailed, match=rf"w0 was restarted {MAX_RESTARTS} times without finishing a group; last:"):
            await play(pool, 8)
        assert MAX_RESTARTS == 5 and script.starts["w0"] == 1 + MAX_RESTARTS

    run(script, scenario)


def test_a_finished_group_makes_the_restarts_before_it_count_no_more() -> None:
    script = Script(play=deadly(0, 1, 2, 3))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        for number in range(4):  # each costs two restarts, and a group is finished between them
            groups, _ = await play_these(pool, number, 50)
            assert set(failed(groups)) == {number}
        assert pool.restarts["w0"] > MAX_RESTARTS

    run(script, scenario, infra_attempts=2)


async def play_these(pool: RolloutPool, *sequences: int) -> tuple[list[GroupRef], None]:
    return list(
        await asyncio.gather(*(pool.run(ticket(sequence), PLAY, lambda _: None) for sequence in sequences))
    ), None


def test_a_worker_whose_first_restart_fails_is_started_again() -> None:
    def start(worker: Any) -> None:
        if script.starts["w0"] == 2:
            raise RuntimeError("no memory just now")

    async def hook(worker: Any, ticket: Ticket) -> None:
        if script.starts["w0"] == 1:
            worker.die()
            await asyncio.sleep(0)

    script = Script(play=hook, start=start)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 2)
        assert not failed(groups) and pool.restarts == {"w0": 2}
        assert pool.workers[0].state is State.READY

    run(script, scenario)


def test_a_start_whose_place_went_away_is_no_restart_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []

    async def while_placed(work: Awaitable[Any], where: Any, what: str) -> Any:
        places.append(1)
        result = await work
        if 1 < len(places) <= 2 + 2 * MAX_RESTARTS:
            raise NoPlace("its node is gone")
        return result

    async def hook(worker: Any, ticket: Ticket) -> None:
        if script.starts["w0"] == 1:
            worker.die()
            await asyncio.sleep(0)

    monkeypatch.setattr(actors.pool, "while_placed", while_placed)
    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 1)
        assert not failed(groups) and len(places) == 3 + 2 * MAX_RESTARTS

    run(script, scenario)


def test_a_worker_that_cannot_start_at_all_is_an_error_of_the_run() -> None:
    def start(worker: Any) -> None:
        raise RuntimeError("no such model")

    with pytest.raises(RunFailed, match="w0 could not start: RuntimeError: no such model"):
        run(Script(start=start), lambda pool: asyncio.sleep(0))


def test_a_worker_that_comes_back_hears_of_the_services_before_it_plays() -> None:
    heard: list[Any] = []

    async def hook(worker: Any, ticket: Ticket) -> None:
        heard.append(dict(worker.heard))
        if script.starts["w0"] == 1:
            worker.die()

    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.connect({"judge": "http://here"})
        await pool.publisher.publish(version(1))
        await play(pool, 1)
        assert heard == [{"judge": "http://here"}] * 2

    run(script, scenario)


def test_an_evaluation_survives_a_death_without_published_weights() -> None:
    script = Script(play=deadly(0))

    async def scenario(pool: RolloutPool) -> None:
        await pool.adopt()
        groups, _ = await play(pool, 3)
        assert set(failed(groups)) == {0}

    run(script, scenario)


def test_too_few_workers_with_a_node_are_waited_for_and_then_end_the_run(fake_ray: FakeRay) -> None:
    script = Script(play=deadly(0))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        fake_ray.placed = lambda: False
        with pytest.raises(RunFailed, match=r"^0 of 1 rollout workers have a node .*=1\), for 0.05 s"):
            await play(pool, 1)
        assert pool.lost == 1 and pool.restarts == {"w0": 0}

    run(script, scenario)


def test_enough_workers_with_a_node_go_on_however_long_one_is_lost(fake_ray: FakeRay) -> None:
    async def hook(worker: Any, ticket: Ticket) -> None:
        if worker.name == "w0" and script.starts["w0"] == 1:
            worker.die()
            await asyncio.sleep(0)

    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        fake_ray.placed = lambda: False
        await play(pool, 2)
        await asyncio.sleep(0.02)  # longer than the placement may take
        groups, _ = await play(pool, 2)
        assert pool.lost == 1 and not failed(groups)
        fake_ray.placed = lambda: True
        await until(lambda: not pool.lost and pool.workers[0].state is State.READY)
        assert pool.restarts == {"w0": 1, "w1": 0}

    run(script, scenario, workers=2, placement_timeout_s=0.005)


def test_a_place_that_comes_back_in_time_ends_nothing(fake_ray: FakeRay) -> None:
    script = Script(play=deadly(0))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        fake_ray.placed = lambda: False
        playing = asyncio.create_task(play(pool, 1))
        await until(lambda: pool.lost == 1)
        fake_ray.placed = lambda: True
        groups, _ = await playing
        assert set(failed(groups)) == {0}
        await until(lambda: pool.restarts == {"w0": 2})

    run(script, scenario, infra_attempts=2, placement_timeout_s=60)


def test_what_was_sampled_for_unfinished_groups_is_lost_and_what_was_delivered_is_not() -> None:
    async def hook(worker: Any, ticket: Ticket) -> None:
        if ticket.sequence == 9 and script.starts["w0"] == 1:
            worker.generated += 5
            seen = worker.pings
            await until(lambda: worker.pings > seen + 1)  # the first of them has told the pool
            worker.die()

    script = Script(play=hook)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        await play(pool, 3)
        await pool.run(ticket(9), PLAY, lambda _: None)
        assert pool.lost_tokens == 5
        assert [status.generated_tokens for status in await pool.status()] == [PLAY.group_size]

    run(script, scenario)


@pytest.mark.parametrize("hangs", [False, True], ids=["dies", "hangs"])
def test_a_worker_that_ends_in_a_call_for_metrics_is_brought_back_as_after_any_other(hangs: bool) -> None:
    async def ping(worker: Any) -> None:
        if worker.name == "w1" and script.starts["w1"] == 1 and broken.is_set():
            if not hangs:
                worker.die()
            await asyncio.Event().wait()

    broken, script = asyncio.Event(), Script(ping=ping)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        broken.set()
        assert len(await pool.status()) == 1  # of the other one: the row is made without it
        await until(lambda: pool.workers[1].state is State.READY)
        assert pool.restarts == {"w0": 0, "w1": 1}
        assert [status.version for status in await pool.status()] == [1, 1]

    run(script, scenario, workers=2, call_timeout_s=0.05)


def test_each_lost_process_of_environments_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        for lost in (("first",), ("first", "second")):
            script.lost["w0"] = lost
            await pool.status()
            await pool.status()

    run(script, scenario)
    messages = [record.getMessage() for record in caplog.records if "other episodes" in record.getMessage()]
    assert messages == [f"w0: {why}; the other episodes are played again" for why in ("first", "second")]


def test_a_stop_lets_those_that_answer_stop_and_ends_every_actor(fake_ray: FakeRay) -> None:
    """One that is starting would not hear: its event loop is busy."""
    starting = asyncio.Event()

    async def start(worker: Any) -> None:
        if script.starts["w1"] == 2:
            starting.set()
            await asyncio.Event().wait()

    script = Script(start=start)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        fake_ray.handles[1].die()
        await starting.wait()

    run(script, scenario, workers=3)
    assert sorted(script.stopped) == ["w0", "w2"] and all(handle.killed for handle in fake_ray.handles)
    assert pool_is_over(script, fake_ray)


def pool_is_over(script: Script, ray: FakeRay) -> bool:
    """Nobody was started again."""
    return len(ray.handles) == sum(script.starts.values())


def test_groups_wait_in_the_driver_for_room_and_a_large_one_is_played_all_the_same() -> None:
    most = 0
    playing = 0

    async def hook(worker: Any, ticket: Ticket) -> None:
        nonlocal most, playing
        playing += 1
        most = max(most, playing)
        await asyncio.sleep(0.001)
        playing -= 1

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, retried = await play(pool, 20)
        assert most == 3 and not failed(groups) and not retried
        groups, _ = await play(pool, 3, replace(PLAY, group_size=50))
        assert not failed(groups) and {len(group.summaries) for group in groups} == {50}

    run(Script(play=hook), scenario, in_flight=7)


def test_an_outage_of_a_tool_is_said_once_while_it_lasts_whoever_sees_it(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()
    away = {"judge": ToolStats(outage="\x1b[2J503"), "grader": ToolStats()}

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        for seen in ({}, {"w0": away}, {"w0": away, "w1": away}, {"w1": away}, {}, {"w1": away}):
            script.tools = seen
            await pool.status()
            await pool.status()

    run(script, scenario, workers=2)
    messages = [record.getMessage() for record in caplog.records if "judge" in record.getMessage()]
    begins, ends = "the judge does not answer (\\x1b[2J503): what needs it waits", "the judge answers again"
    assert messages == [begins, ends, begins]


def test_an_engine_that_takes_no_step_is_said_long_before_it_counts_as_hung(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        for idle_s in (0.0, QUIET_S - 1, QUIET_S + 1, QUIET_S + 6, 0.0, QUIET_S):
            script.idle_s = {"w1": idle_s}
            await pool.status()
        assert pool.restarts == {"w0": 0, "w1": 0}

    run(script, scenario, workers=2)
    messages = [record.getMessage() for record in caplog.records if "no engine step" in record.getMessage()]
    assert len(messages) == 2 and all(
        line.startswith("w1: ") and "3 requests" in line and "60 s" in line for line in messages
    )


def test_a_worker_whose_node_gave_up_its_weight_store_has_its_own_restarts() -> None:
    class Full(FakeDistributor):
        async def ensure(self, nodes: Any) -> None:
            if script.starts["w0"] == 2:
                raise GaveUp("the weight store of node here was restarted 5 times")

    script = Script(play=deadly(0))

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(version(1))
        groups, _ = await play(pool, 2)
        assert set(failed(groups)) == {0} and pool.restarts["w0"] >= 2

    run(script, scenario, distributor=Full())


def alternating(script: Script, scenario: Callable[[RolloutPool, AlternatingCards], Awaitable[None]]) -> None:
    """The learner and the workers use the same cards; what the learner does there is up to the scenario."""
    cards = AlternatingCards()

    async def whole() -> None:
        pool = make_pool(script, 2, cards=cards)

        async def give(side: Side) -> None:
            await (pool.sleep() if side is Side.LEARNER else pool.wake())

        cards.begin(give)
        await pool.start()
        await pool.adopt()
        try:
            await scenario(pool, cards)
        finally:
            await pool.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_a_worker_that_dies_asleep_is_started_again_when_the_engines_have_the_cards() -> None:
    workers: dict[str, Any] = {}
    starts: list[bool] = []  # whether the learner held the cards
    held = False

    def start(worker: Any) -> None:
        workers[worker.name] = worker
        starts.append(held)

    script = Script(start=start)

    async def scenario(pool: RolloutPool, cards: AlternatingCards) -> None:
        nonlocal held
        async with cards.hold(Side.LEARNER):
            held = True
            assert all(worker.asleep for worker in workers.values())
            workers["w0"].die()
            pool.mark_dead(pool.workers[0], pool.workers[0].handle, RunFailed("it died asleep"))
            await asyncio.sleep(0.05)
            assert script.starts["w0"] == 1
            held = False
        await until(lambda: pool.workers[0].state is State.READY)
        assert not any(worker.asleep for worker in workers.values())
        groups, _ = await play(pool, 4)
        assert not failed(groups)

    alternating(script, scenario)
    assert starts == [False] * 3


def test_an_engine_that_cannot_fall_asleep_is_ended_and_the_learner_gets_the_card() -> None:
    def sleep(worker: Any) -> None:
        if worker.name == "w1" and script.starts["w1"] == 1:
            raise EngineFailed("it was left half asleep")

    script = Script(sleep=sleep)

    async def scenario(pool: RolloutPool, cards: AlternatingCards) -> None:
        async with cards.hold(Side.LEARNER):
            assert pool.workers[0].state is State.READY and pool.workers[1].state is State.DEAD
        await until(lambda: pool.workers[1].state is State.READY)

    alternating(script, scenario)
    assert script.starts == {"w0": 1, "w1": 2}


def test_a_worker_comes_back_though_the_ranks_beside_it_are_lost() -> None:
    """Else both deaths of one node would end the run: the learner's are mended, the pool's would not be."""
    cards, lost = AlternatingCards(), False
    script = Script()

    async def whole() -> None:
        nonlocal lost
        pool = make_pool(script, 2, cards=cards)

        async def leave() -> None:
            if lost:
                raise LearnerLost("a rank died")

        async def come() -> None: ...

        learner: Any = SimpleNamespace(leave_card=leave, return_to_card=come)
        recipe = compose("quickstart", ["cluster.placement=sleep"]).recipe
        alternate(recipe, cards, learner, pool)
        await pool.start()
        await pool.adopt()
        async with cards.hold(Side.LEARNER):
            pool.mark_dead(pool.workers[0], pool.workers[0].handle, RunFailed("died asleep"))
            lost = True
        await until(lambda: pool.workers[0].state is State.READY)
        await pool.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_a_learner_gets_the_cards_of_engines_that_were_stopped() -> None:
    """As a run that stops saves its last step: the engines end first, and nothing is asked of them any more."""

    async def scenario(pool: RolloutPool, cards: AlternatingCards) -> None:
        async with cards.hold(Side.ENGINES):
            assert len(pool.workers) == 2
        await pool.stop()
        async with cards.hold(Side.LEARNER):
            assert all(worker.handle is None for worker in pool.workers)

    alternating(Script(), scenario)


def test_what_is_sent_to_all_workers_leaves_the_loop_to_others_in_between() -> None:
    """Of forty workers one is asked, or loads, in a round of the driver's loop."""
    sent, rounds = 0, list[int]()

    async def count_ping(worker: Any) -> None:
        nonlocal sent
        sent += 1

    async def count_load(worker: Any, version: int) -> None:
        nonlocal sent
        sent += 1

    async def watch(work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            before = sent
            await asyncio.sleep(0)
            rounds.append(sent - before)
        await task

    async def scenario(pool: RolloutPool) -> None:
        await watch(pool.publisher.publish(version(1)))
        await watch(pool.status())

    run(Script(ping=count_ping, load=count_load), scenario, workers=40)
    assert sent >= 80 and max(rounds) == 1
