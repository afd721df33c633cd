"""No episode times out that its engine served in time, however many wait for a seat there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import actors.worker
from actors.scoring import ScoringSpec
from actors.specs import EngineFailed, EngineStats
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.rollout import TurnRequest
from rlsys.system.weight_folder import WeightManifest, WeightsRejected
from rlsys.types import Completion, Group, Reward, TurnStop
from tests.fakes.local_worlds import play_here
from tests.makers import made
from tests.unit.envs.services.test_guard import play as run
from tests.unit.rlsys.test_rollout import completion, play_group

SEATS, EPISODES, SECONDS = 2, 64, 3.0


class Engine:
    """Says as many letters as its request has left, each in a second; it refuses more requests than it has seats."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.cuts: dict[str, asyncio.Event] = {}
        self.steps = EngineStats(waiting=1)

    def stop(self) -> None:
        self.steps = EngineStats()

    def stats(self) -> EngineStats:
        return self.steps

    async def generate(self, context: Sequence[int], request: TurnRequest, name: str) -> Completion:
        self.running += 1
        self.most = max(self.most, self.running)
        began, letters = asyncio.get_running_loop().time(), int(1 + request.seed % SECONDS)
        over = self.cuts[name] = asyncio.Event()
        try:
            await asyncio.wait_for(over.wait(), letters)
        except TimeoutError:
            return completion("a" * letters + "!", TurnStop.STOP)
        finally:
            self.running -= 1
        return completion("a" * int(asyncio.get_running_loop().time() - began), TurnStop.ABORT)

    def cut(self, name: str) -> None:
        self.cuts[name].set()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: None)
    seconds: dict[str, Any] = {"stall_s": 9.0, "block_s": 9.0, "start_timeout_s": 9.0}
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    engine = made.engine_spec(max_num_seqs=SEATS)
    return RolloutWorker(WorkerSpec(name="rollout:0", engine=engine, run_seed=0, scoring=scoring, **seconds))


def test_a_deadline_above_the_time_in_a_seat_is_enough_however_long_the_queue_is(worker: RolloutWorker) -> None:
    async def scenario() -> Group:
        worker.engine = Engine()  # type: ignore[assignment]
        plan = made.plan(group_size=EPISODES, max_turn_tokens=4, max_context=40, timeout_s=SECONDS + 1)
        return await play_group(worker.generate, plan=plan)

    group = run(scenario())
    assert worker.engine.most == SEATS  # type: ignore[union-attr]
    assert all(isinstance(trajectory.reward, Reward) and not trajectory.retried for trajectory in group.trajectories)
    lengths = {len(trajectory.turns[0].completion.token_ids) for trajectory in group.trajectories}
    assert lengths == {2, 3, 4}
    took = [trajectory.timings.generate_s for trajectory in group.trajectories]
    assert max(took) <= SECONDS  # in the seat: the queue is nobody's slowness


def test_an_engine_that_is_too_slow_for_the_deadline_is_found_out_all_the_same(worker: RolloutWorker) -> None:
    async def scenario() -> Group:
        worker.engine = Engine()  # type: ignore[assignment]
        plan = made.plan(group_size=8, max_turn_tokens=4, max_context=40, timeout_s=0.5)
        return await play_group(worker.generate, plan=plan)

    group = run(scenario())
    assert {trajectory.reward.kind for trajectory in group.trajectories} == {"timeout"}  # type: ignore[union-attr]


def test_seats_are_free_again_whatever_became_of_their_requests(worker: RolloutWorker) -> None:
    async def scenario() -> int:
        worker.engine = Engine()  # type: ignore[assignment]
        request = TurnRequest(max_tokens=4, temperature=1.0, top_p=1.0, seed=2)
        tasks = [asyncio.create_task(worker.generate(made.ints([1]), request)) for _ in range(9)]
        await asyncio.sleep(0.5)
        waiting = worker.waiting
        for task in tasks[:8]:  # two in their seats, six that wait
            task.cancel()
        await tasks[8]
        await asyncio.gather(*(worker.generate(made.ints([1]), request) for _ in range(4)))
        return waiting

    assert run(scenario()) == 7
    assert worker.engine.most == SEATS and worker.waiting == worker.in_flight == 0  # type: ignore[union-attr]


def test_an_engine_is_busy_while_it_has_a_request_and_what_waits_for_a_seat_is_told(
    worker: RolloutWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(actors.worker, "time", clock)
    request = TurnRequest(max_tokens=4, temperature=1.0, top_p=1.0, seed=0)  # a second each
    reports: list[tuple[float, int, int]] = []

    async def tell() -> None:
        status = await worker.ping()
        reports.append((status.busy_s, status.engine.waiting, status.generated_tokens))

    async def scenario() -> None:
        play_here(worker)
        worker.engine = Engine()  # type: ignore[assignment]
        worker.spec = replace(worker.spec, stall_s=99.0)
        await tell()
        tasks = [asyncio.create_task(worker.generate(made.ints([1]), request)) for _ in range(3)]
        await asyncio.sleep(0.5)
        await tell()
        await asyncio.gather(*tasks)
        await asyncio.sleep(7)
        await tell()
        await asyncio.gather(worker.generate(made.ints([1]), request), asyncio.sleep(3))
        await tell()
        engine, _ = worker.engine, await worker.stop()
        assert worker.engine is None and engine.stats() == EngineStats()  # it was stopped

    run(scenario())
    assert reports == [(0.0, 1, 0), (0.5, 1 + 1, 0), (2.0, 1, 6), (3.0, 1, 8)]


class Loading(Engine):
    refuses = False

    async def load(self, published: WeightManifest) -> None:
        await asyncio.sleep(3)
        if self.refuses:
            raise WeightsRejected("not whole")

    async def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        await asyncio.sleep(2)
        return [-1.0] * (len(token_ids) - 1)


def test_a_delivery_says_how_long_the_load_took_and_how_long_the_probe(
    worker: RolloutWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(actors.worker, "time", clock)

    async def scenario() -> None:
        with pytest.raises(EngineFailed, match="has no engine"):
            await worker.load_weights(WeightManifest(version=7), [])
        await asyncio.sleep(100)
        engine = worker.engine = Loading()  # type: ignore[assignment]
        delivery = await worker.load_weights(WeightManifest(version=7), [[1, 2], [1, 2, 3]])
        assert (delivery.version, delivery.seconds, delivery.probe_s, worker.version) == (7, 3.0, 2.0, 7)
        assert delivery.probe_logprobs == ((-1.0,), (-1.0, -1.0))
        engine.refuses = True
        with pytest.raises(WeightsRejected):
            await worker.load_weights(WeightManifest(version=8), [])
        assert worker.version is None  # it may hold half of it

    run(scenario())
