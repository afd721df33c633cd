"""A worker answers for its engine: one that stopped taking steps is broken, however well the actor itself is."""

import asyncio
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

import actors.env_server
import actors.worker
from actors.scoring import ScoringSpec
from actors.specs import EngineFailed, EngineStats
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.rollout import RolloutPlan
from rlsys.types import Group, Ticket
from tests.fakes.local_worlds import play_here
from tests.makers import made
from tests.makers.made import engine_spec, plan, ticket

SCORING = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: None)
    seconds: dict[str, Any] = {"stall_s": 0.0, "block_s": 9.0, "start_timeout_s": 9.0}
    actor = RolloutWorker(WorkerSpec(name="rollout:0", engine=engine_spec(), run_seed=0, scoring=SCORING, **seconds))
    play_here(actor)
    return actor


def stats(running: int) -> EngineStats:
    return EngineStats(running=running, waiting=2, kv_usage=0.5)


def test_requests_without_engine_steps_are_a_broken_engine(worker: RolloutWorker) -> None:
    last = stats(1)
    worker.engine = SimpleNamespace(stats=lambda: last)  # type: ignore[assignment]
    worker.in_flight = 1
    status = asyncio.run(worker.ping())
    assert status.engine == last and (status.requests, status.idle_s) == (1, 0.0)
    with pytest.raises(EngineFailed, match="no engine step for .* with 1 requests"):
        asyncio.run(worker.ping())


def test_an_idle_engine_and_one_that_takes_steps_are_well(worker: RolloutWorker) -> None:
    still = stats(0)
    worker.engine = SimpleNamespace(stats=lambda: still)  # type: ignore[assignment]
    for _ in range(3):
        asyncio.run(worker.ping())
    worker.engine = SimpleNamespace(stats=lambda: stats(1))  # type: ignore[assignment]
    worker.in_flight = 1
    for _ in range(3):
        asyncio.run(worker.ping())


def test_a_worker_without_published_weights_serves_nothing(worker: RolloutWorker) -> None:
    with pytest.raises(EngineFailed, match="holds no published weights"):
        asyncio.run(worker.run_group(ticket(), None))  # type: ignore[arg-type]


class Slow:
    """A world that takes a moment to close."""

    max_turns, env = 1, None

    def __init__(self, config: str) -> None:
        self.name, self.closed = config, 0
        MADE.append(self)

    def tool_stats(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


MADE: list[Slow] = []


async def play_nothing(player: Any, source: Any, asked: Ticket, played: RolloutPlan) -> Group:
    await source.max_turns()
    await asyncio.sleep(0.01)
    return made.group(asked)


def test_a_world_is_made_once_and_closed_once_when_many_groups_come_with_a_new_one(
    worker: RolloutWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    MADE.clear()
    monkeypatch.setattr(actors.env_server, "new_player", Slow)
    monkeypatch.setattr(actors.worker, "run_group", play_nothing)
    asyncio.run(worker.adopt())

    async def groups(*envs: str) -> None:
        await asyncio.gather(*(worker.run_group(ticket(), plan(env=env)) for env in envs))

    asyncio.run(groups("rl", "eval", "rl", "eval"))
    asyncio.run(groups("next", "next", "next"))
    assert [(world.name, world.closed) for world in MADE] == [("rl", 1), ("eval", 1), ("next", 0)]
    asyncio.run(worker.stop())
    assert [world.closed for world in MADE] == [1, 1, 1]


def test_what_ray_prints_of_a_worker_has_no_secret() -> None:
    (secrets,) = (field for field in fields(WorkerSpec) if field.name == "secrets")
    assert not secrets.repr
