"""A worker answers for its engine: one that stopped taking steps is broken, however well the actor itself is."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import actors.worker
from actors.engine import EngineFailed, EngineStats
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.types import Task, Ticket


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: None)
    engine: Any = SimpleNamespace(model_path="nowhere")
    return RolloutWorker(WorkerSpec(name="rollout:0", engine=engine, run_seed=0, stall_s=0.0))


def stats(running: int) -> EngineStats:
    return EngineStats(running=running, waiting=2, kv_usage=0.5)


def test_requests_without_engine_steps_are_a_broken_engine(worker: RolloutWorker) -> None:
    last = stats(1)
    worker.engine = SimpleNamespace(stats=lambda: last)  # type: ignore[assignment]
    worker._in_flight = 1
    status = asyncio.run(worker.ping())
    assert (status.waiting, status.kv_usage) == (2, 0.5)
    with pytest.raises(EngineFailed, match="no engine step for .* with 1 requests"):
        asyncio.run(worker.ping())


def test_an_idle_engine_and_one_that_takes_steps_are_well(worker: RolloutWorker) -> None:
    still = stats(0)
    worker.engine = SimpleNamespace(stats=lambda: still)  # type: ignore[assignment]
    for _ in range(3):
        asyncio.run(worker.ping())
    worker.engine = SimpleNamespace(stats=lambda: stats(1))  # type: ignore[assignment]
    worker._in_flight = 1
    for _ in range(3):
        asyncio.run(worker.ping())


def test_a_worker_without_published_weights_serves_nothing(worker: RolloutWorker) -> None:
    ticket = Ticket(sequence=0, epoch=0, task=Task(task_id="t", question="?"), attempt=0, start_version=1)
    with pytest.raises(EngineFailed, match="holds no published weights"):
        asyncio.run(worker.run_group(ticket, None))  # type: ignore[arg-type]
