"""An engine that leaves its device to a learner: no time passes for the episodes whose answers stand still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

import actors.worker
from actors.scoring import ScoringSpec
from actors.specs import EngineStats
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.clock import deadline
from rlsys.rollout import TurnRequest
from rlsys.types import Completion, TurnStop
from tests.fakes.local_worlds import play_here
from tests.makers import made
from tests.unit.envs.services.test_guard import now
from tests.unit.envs.services.test_guard import play as run

ASKED = TurnRequest(max_tokens=400, temperature=1.0, top_p=1.0, seed=0)


class Sleeper:
    """Takes `seconds` for an answer, in which it has to be awake, or until it is cut."""

    def __init__(self, seconds: float = 200.0) -> None:
        self.seconds, self.awake = seconds, asyncio.Event()
        self.awake.set()
        self.over = asyncio.Event()
        self.asked = list[str]()
        self.last = EngineStats(running=1)

    async def generate(self, context: Sequence[int], request: TurnRequest, name: str) -> Completion:
        assert self.awake.is_set(), "a request to an engine that sleeps"
        self.asked.append(name)
        for second in range(int(self.seconds)):
            if self.over.is_set():
                return made.completion((34,) * second, '"', version=3, stop=TurnStop.ABORT)
            await asyncio.sleep(1.0)
            await self.awake.wait()
        return made.completion((33,) * int(self.seconds), "!", version=3, stop=TurnStop.STOP)

    def cut(self, name: str) -> None:
        self.over.set()

    async def sleep(self) -> None:
        self.awake.clear()

    async def wake(self) -> None:
        self.awake.set()

    def stats(self) -> EngineStats:
        return self.last


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: None)
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    spec = WorkerSpec(
        name="rollout:0", engine=made.engine_spec(), run_seed=0, scoring=scoring, stall_s=60.0, block_s=9.0,
        start_timeout_s=9.0,
    )  # fmt: skip
    actor = RolloutWorker(spec)
    play_here(actor)
    return actor


async def answer(worker: RolloutWorker, within_s: float) -> Completion:
    async with deadline(10 * within_s), deadline(within_s):
        return await worker.generate((1, 2), ASKED)


def test_an_answer_goes_on_after_the_sleep_with_the_time_that_it_had(worker: RolloutWorker) -> None:
    async def scenario() -> tuple[int, float]:
        worker.engine = Sleeper()  # type: ignore[assignment]
        playing = asyncio.create_task(answer(worker, 300.0))
        for _ in range(3):
            await asyncio.sleep(50.0)
            await worker.sleep()
            await worker.sleep()  # a learner that was not sure
            await asyncio.sleep(1000.0)
            await worker.wake()
            await worker.wake()
        return len((await playing).token_ids), now()

    tokens, seconds = run(scenario())
    assert tokens == 200 and seconds == pytest.approx(3200.0, abs=3.0)


def test_a_deadline_still_cuts_what_takes_longer_than_it_awake(worker: RolloutWorker) -> None:
    async def scenario() -> Completion:
        worker.engine = Sleeper(400.0)  # type: ignore[assignment]
        playing = asyncio.create_task(answer(worker, 300.0))
        await asyncio.sleep(100.0)
        await worker.sleep()
        await asyncio.sleep(1000.0)
        await worker.wake()
        return await playing

    completion = run(scenario())
    assert completion.stop is TurnStop.ABORT and len(completion.token_ids) == pytest.approx(300, abs=2)


def test_what_is_asked_of_a_sleeping_engine_waits_and_leaves_its_seat_when_it_is_cancelled(
    worker: RolloutWorker,
) -> None:
    async def scenario() -> tuple[int, int]:
        engine = worker.engine = Sleeper(5.0)  # type: ignore[assignment]
        await worker.sleep()
        seats = worker.seats.free
        waiting = [asyncio.create_task(answer(worker, 30.0)) for _ in range(3)]
        await asyncio.sleep(500.0)
        assert engine.asked == []  # type: ignore[union-attr]
        waiting[0].cancel()
        await worker.wake()
        await asyncio.gather(*waiting, return_exceptions=True)
        return len(engine.asked), seats - worker.seats.free  # type: ignore[union-attr]

    assert run(scenario()) == (2, 0)


def test_a_sleep_is_no_hung_engine_and_no_hung_group(worker: RolloutWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        worker.engine = Sleeper()  # type: ignore[assignment]
        with monkeypatch.context() as patch:
            patch.setattr(actors.worker, "run_group", lambda *_: answer(worker, 300.0))
            patch.setattr(actors.worker, "summarize_group", lambda group: ())
            await worker.adopt()
            playing = asyncio.create_task(worker.run_group(made.ticket(0), made.plan(purpose="rl")))
            await asyncio.sleep(1.0)
            await worker.ping()
            await worker.sleep()
            await asyncio.sleep(1000.0)
            assert (await worker.ping()).idle_s == 0.0 and await worker.idle_s("rl", 0, 0) == 0.0
            await worker.wake()
            await asyncio.sleep(10.0)
            assert await worker.idle_s("rl", 0, 0) == pytest.approx(10.0)
            assert (await worker.ping()).requests == 1
            playing.cancel()

    run(scenario())


def test_a_sleeping_engine_is_not_busy(worker: RolloutWorker) -> None:
    async def scenario() -> None:
        worker.engine = Sleeper()  # type: ignore[assignment]
        playing = asyncio.create_task(answer(worker, 300.0))
        await asyncio.sleep(1.0)
        await worker.sleep()
        before = (await worker.ping()).busy_s
        time.sleep(0.1)  # the counter is of real time
        assert (await worker.ping()).busy_s == before
        await worker.wake()
        time.sleep(0.1)
        assert (await worker.ping()).busy_s >= before + 0.1
        playing.cancel()

    run(scenario())
