"""The rollout pool on a real Ray cluster: workers die, hang and lie, and every group comes back."""

import asyncio
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import ray
import torch

import actors.pool
from actors.pool import PoolOptions, Publication, RolloutPool
from actors.scoring import ScoringSpec
from actors.specs import EngineSpec
from actors.worker import WorkerSpec
from launch.run.gauges import Gauges
from rlsys.channels.shm import SharedMemory
from rlsys.errors import RunFailed
from rlsys.rollout import RolloutPlan
from rlsys.types import EpisodeEnd, Group, Task, Ticket
from tests.fakes import FakeWorker

pytestmark = pytest.mark.ray

PLAY = RolloutPlan(
    purpose="t",
    env=None,
    reward=None,
    group_size=3,
    temperature=1.0,
    top_p=1.0,
    max_turn_tokens=1,
    max_context=8,
    timeout_s=5.0,
)
ROOT = Path(__file__).resolve().parents[2]
METRICS_PORT = 28671


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["PYTHONPATH"] = str(ROOT)
    options = {"object_store_memory": 100 * 2**20, "_metrics_export_port": METRICS_PORT}
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, **options)
    yield
    ray.shutdown()


def make_pool(tmp_path: Path, workers: int = 2, **changes: float) -> RolloutPool:
    engine = EngineSpec(
        model_path=str(tmp_path),
        dtype="float32",
        max_model_len=8,
        max_num_seqs=1,
        seed=0,
        prefix_cache=False,
        enforce_eager=True,
        threads=1,
        kv_cache_mb=1,
        gpu_memory_utilization=0.5,
        block_size=32,
    )
    options = PoolOptions(
        run=tmp_path.name,
        cpus=1,
        gpus=0,
        env_vars={"PYTHONPATH": str(ROOT)},
        start_timeout_s=60,
        call_timeout_s=5,
        group_timeout_s=60,
        infra_attempts=3,
        mismatch_limit=0.1,
    )
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    specs = [
        WorkerSpec(name=f"w{index}", engine=engine, run_seed=0, scoring=scoring, stall_s=60.0)
        for index in range(workers)
    ]
    return RolloutPool(specs, replace(options, **changes), worker=FakeWorker)


def test_rays_own_metrics_have_the_numbers_of_a_row() -> None:
    Gauges("q").set({"reward/mean": 0.625, "stage": "rl", "other": 1.0})
    shown, until = "", time.monotonic() + 60
    while "rlsys_reward_mean" not in shown and time.monotonic() < until:
        time.sleep(0.5)
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics") as page:
            shown = page.read().decode()
    (line,) = [line for line in shown.splitlines() if line.startswith("ray_rlsys_reward_mean{")]
    assert 'run="q"' in line and 'stage="rl"' in line and line.endswith(" 0.625")


def publication(tmp_path: Path, version: int, logit: float = 0.0) -> Publication:
    published = SharedMemory(tmp_path).send(version, [lambda: {"logits": torch.tensor([logit, 0.0])}], 0, 1)
    return Publication(published=published, probe=((1,),), expected=((logit,),))


def ticket(sequence: int) -> Ticket:
    return Ticket(
        sequence=sequence, epoch=0, task=Task(task_id=str(sequence), question="?"), attempt=0, start_version=1
    )


async def play(pool: RolloutPool, count: int) -> tuple[list[Group], list[Ticket]]:
    retried: list[Ticket] = []
    groups = await asyncio.gather(*(pool.run(ticket(sequence), PLAY, retried.append) for sequence in range(count)))
    return list(groups), retried


def test_a_worker_that_dies_is_restarted_refitted_and_its_groups_played_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = make_pool(tmp_path)
        await pool.start()
        await pool.publish(publication(tmp_path, 1))
        (tmp_path / "die-w0").touch()
        groups, retried = await play(pool, 8)
        assert [group.ticket.sequence for group in groups] == list(range(8))
        assert all(t.end is EpisodeEnd.ANSWERED for group in groups for t in group.trajectories)
        assert retried and all(again.attempt == 1 for again in retried)
        assert {group.ticket.attempt for group in groups} == {0, 1}
        second = publication(tmp_path, 2, logit=1.0)
        arrivals = await pool.publish(second)
        while len(arrivals) < 2:  # w0 is still on its way: the version it comes back with is the newest
            await asyncio.sleep(0.05)
            arrivals = await pool.publish(replace(second))
        assert {arrival.delivery.version for arrival in arrivals} == {2}
        assert pool.restarts == {"w0": 1, "w1": 0}
        names = {f"rlsys:{tmp_path.name}:w0#1", f"rlsys:{tmp_path.name}:w1"}
        assert names <= set(ray.util.list_named_actors())
        await pool.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_every_worker_dying_under_a_delivery_is_survived(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = make_pool(tmp_path)
        await pool.start()
        for name in ("w0", "w1"):
            (tmp_path / f"die-loading-{name}").touch()
        arrivals = await pool.publish(publication(tmp_path, 1))
        assert arrivals and arrivals[0].gap_max == 0.0
        groups, _ = await play(pool, 2)
        assert all(group.worker in ("w0", "w1") for group in groups)
        await pool.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_worker_that_hangs_is_found_by_its_ping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.pool, "PING_EVERY_S", 0.2)

    async def scenario() -> None:
        pool = make_pool(tmp_path, call_timeout_s=1.0)
        await pool.start()
        await pool.publish(publication(tmp_path, 1))
        (tmp_path / "hang-w1").touch()
        groups, _ = await play(pool, 6)
        assert all(t.end is EpisodeEnd.ANSWERED for group in groups for t in group.trajectories)
        assert pool.restarts["w1"] >= 1
        await pool.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_an_engine_that_keeps_old_weights_is_loaded_again_and_then_stops_the_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = make_pool(tmp_path)
        await pool.start()
        (tmp_path / "deaf-w1").touch()
        with pytest.raises(RunFailed, match=r"w1 does not compute what the learner computes.*kept old weights"):
            await pool.publish(publication(tmp_path, 1, logit=2.0))
        await pool.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_evaluation_survives_a_death_without_published_weights(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = make_pool(tmp_path, workers=1)
        await pool.start()
        await pool.adopt()
        (tmp_path / "die-w0").touch()
        groups, retried = await play(pool, 2)
        assert all(t.end is EpisodeEnd.ANSWERED for group in groups for t in group.trajectories)
        assert retried
        await pool.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_group_whose_workers_keep_dying_is_a_typed_failure(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = make_pool(tmp_path, workers=1, infra_attempts=1)
        await pool.start()
        await pool.publish(publication(tmp_path, 1))
        (tmp_path / "die-w0").touch()
        groups, retried = await play(pool, 1)
        assert not retried
        assert all(t.end is EpisodeEnd.FAILED and t.reward.kind == "infra" for t in groups[0].trajectories)  # type: ignore[union-attr]
        await pool.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))
