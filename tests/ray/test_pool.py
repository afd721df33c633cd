"""The rollout pool on a real Ray cluster: workers die, hang and lie, and every group comes back."""

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.util
import torch

from actors.pool import RolloutPool
from actors.scoring import ScoringSpec
from actors.weights.check import WeightUpdate
from actors.worker import WorkerSpec
from actors.worker_registry import PoolOptions
from launch.driver.observe.gauges import Gauges
from learners.actor import fetch
from rlsys.summaries import GroupRef, summarize_group
from rlsys.system import supervisor
from rlsys.system.weight_folder import WeightFolder
from rlsys.types import EpisodeEnd, Ticket
from tests.fakes.parts import FakeWorker, OneNode
from tests.makers.made import engine_spec, plan, ticket
from tests.paths import ROOT
from tests.ray.lost import lost as lost_object

pytestmark = pytest.mark.ray

PLAY = plan(group_size=3)


def make_pool(tmp_path: Path, workers: int = 2, **changes: float) -> RolloutPool:
    options = PoolOptions(
        run=tmp_path.name,
        cpus=1,
        gpus=0,
        env_vars={"PYTHONPATH": str(ROOT)},
        start_timeout_s=60,
        call_timeout_s=5,
        in_flight=256,
        infra_attempts=3,
        min_workers=1,
        placement_timeout_s=60,
    )
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    specs = [
        WorkerSpec(
            name=f"w{index}",
            engine=engine_spec(tmp_path),
            run_seed=0,
            scoring=scoring,
            stall_s=60.0,
            block_s=30.0,
            start_timeout_s=60.0,
        )
        for index in range(workers)
    ]
    distributor: Any = OneNode(folder(tmp_path))
    return RolloutPool(specs, replace(options, **changes), worker=FakeWorker, distributor=distributor)


def test_rays_own_metrics_have_the_numbers_of_a_row() -> None:
    Gauges("q", {"step": 0}).set({"reward/mean": 0.625, "stage": "rl", "groups/failed": 2, "other": 1.0})
    (node,) = ray.nodes()
    text, until = "", time.monotonic() + 60
    while "rlsys_reward_mean" not in text and time.monotonic() < until:
        time.sleep(0.5)
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics") as page:
            text = page.read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("ray_rlsys_reward_mean{")]
    assert 'run="q"' in line and 'stage="rl"' in line and line.endswith(" 0.625")
    failed = [line for line in text.splitlines() if line.startswith("ray_rlsys_groups_total{")]
    assert sorted(round(float(line.split()[-1]), 6) for line in failed) == [0, 0, 2]  # trained, filtered, failed


def folder(tmp_path: Path) -> WeightFolder:
    return WeightFolder(tmp_path / "versions")


def publication(tmp_path: Path, version: int, logit: float = 0.0) -> WeightUpdate:
    published = folder(tmp_path).send(version, [lambda: {"logits": torch.tensor([logit, 0.0])}], 0, 1)
    return WeightUpdate(published=published, probe=((1,),), expected=((logit,),), limit=0.1)


def run(scenario: Callable[[RolloutPool], Awaitable[None]], tmp_path: Path, **options: Any) -> None:
    async def whole() -> None:
        pool = make_pool(tmp_path, **options)
        await pool.start()
        await scenario(pool)
        await pool.stop()

    asyncio.run(asyncio.wait_for(whole(), 120))


async def who_played(pool: RolloutPool, groups: Sequence[GroupRef]) -> set[str]:
    """Who played them."""
    return {full_group.worker for group in groups if (full_group := await pool.whole(group)) is not None}


async def play(pool: RolloutPool, count: int) -> tuple[list[GroupRef], list[Ticket]]:
    retried: list[Ticket] = []
    groups = await asyncio.gather(*(pool.run(ticket(sequence), PLAY, retried.append) for sequence in range(count)))
    return list(groups), retried


def test_a_worker_that_dies_is_restarted_refitted_and_its_groups_played_elsewhere(tmp_path: Path) -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(publication(tmp_path, 1))
        await pool.connect({"retriever": "http://10.0.0.2:80"})
        heard = tmp_path / "services-w0"
        heard.unlink()
        (tmp_path / "die-w0").touch()
        groups, retried = await play(pool, 8)
        assert [group.ticket.sequence for group in groups] == list(range(8))
        assert all(t.end is EpisodeEnd.ANSWERED for group in groups for t in group.summaries)
        assert retried and all(ticket.attempt == 1 for ticket in retried)
        assert {group.ticket.attempt for group in groups} == {0, 1}
        second = publication(tmp_path, 2, logit=1.0)
        arrivals = await pool.publisher.publish(second)
        while len(arrivals) < 2:  # w0 is still on its way: the version it comes back with is the newest
            await asyncio.sleep(0.05)
            arrivals = await pool.publisher.publish(replace(second))
        assert {arrival.delivery.version for arrival in arrivals} == {2}
        assert "http://10.0.0.2:80" in heard.read_text()  # before it was given weights
        assert pool.restarts == {"w0": 1, "w1": 0}
        names = {f"rlsys:{tmp_path.name}:w0#1", f"rlsys:{tmp_path.name}:w1"}
        assert names <= set(ray.util.list_named_actors())

    run(scenario, tmp_path)


def test_a_group_outlives_its_worker_and_one_that_is_gone_is_played_again(tmp_path: Path) -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(publication(tmp_path, 1))
        (group,), _ = await play(pool, 1)
        full_group = await pool.whole(group)
        assert full_group is not None and full_group.worker in ("w0", "w1")
        assert summarize_group(full_group)[0].reward == group.summaries[0].reward
        for worker in pool.workers:
            ray.kill(worker.handle)
        assert (await pool.whole(group)) is not None
        assert fetch({0: group.source, 1: full_group})[1] == frozenset()
        lost, retried = replace(group, source=lost_object(group)), []
        assert await pool.whole(lost) is None
        groups, missing = fetch({0: lost.source, 7: full_group})
        assert (list(groups), missing) == ([7], {0})
        run, pending = pool.run, [lost]
        pool.run = lambda *args: run(*args) if not pending else returned(pending.pop())  # type: ignore[method-assign]
        replayed = await pool.group(group.ticket, PLAY, retried.append)
        assert replayed.ticket.attempt >= 1 and len(replayed.trajectories) == PLAY.group_size

    run(scenario, tmp_path)


async def returned(value: Any) -> Any:
    return value


def test_a_late_worker_serves_nothing_until_it_holds_the_newest_weights(tmp_path: Path) -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(publication(tmp_path, 1))
        (tmp_path / "slow-w1").touch()
        for version in (2, 3):
            arrivals = await pool.publisher.publish(publication(tmp_path, version, logit=1.0))
            assert [arrival.delivery.version for arrival in arrivals] == [version]
        groups, _ = await play(pool, 6)
        assert await who_played(pool, groups) == {"w0"}
        (tmp_path / "slow-w1").unlink()
        while len(arrivals) < 2:
            arrivals = await pool.publisher.publish(publication(tmp_path, 3, logit=1.0))
        groups, _ = await play(pool, 6)
        assert await who_played(pool, groups) == {"w0", "w1"}
        full_groups = [full_group for group in groups if (full_group := await pool.whole(group)) is not None]
        turns = [turn for group in full_groups for trajectory in group.trajectories for turn in trajectory.turns]
        spans = [span for turn in turns for span in turn.completion.spans]
        assert {span.version for span in spans} == {3}

    run(scenario, tmp_path, publish_deadline_s=0.5)


def test_every_worker_dying_under_a_delivery_is_survived(tmp_path: Path) -> None:
    async def scenario(pool: RolloutPool) -> None:
        for name in ("w0", "w1"):
            (tmp_path / f"die-loading-{name}").touch()
        arrivals = await pool.publisher.publish(publication(tmp_path, 1))
        assert arrivals and arrivals[0].gap_max == 0.0
        groups, _ = await play(pool, 2)
        workers = await who_played(pool, groups)
        assert workers and workers <= {"w0", "w1"}

    run(scenario, tmp_path)


def test_a_worker_that_hangs_is_found_by_its_ping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.2)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(publication(tmp_path, 1))
        (tmp_path / "hang-w1").touch()
        groups, _ = await play(pool, 6)
        assert all(t.end is EpisodeEnd.ANSWERED for group in groups for t in group.summaries)
        assert pool.restarts["w1"] >= 1

    run(scenario, tmp_path, call_timeout_s=1.0)


def test_a_group_that_a_hung_worker_took_with_it_says_what_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that Ray killed an actor: that is what the pool asked for when the ping was not answered."""
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.2)

    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(publication(tmp_path, 1))
        (tmp_path / "hang-w0").touch()
        groups, _ = await play(pool, 1)
        failures = {t.reward.detail for t in groups[0].summaries}  # type: ignore[union-attr]
        assert len(failures) == 1 and "w0 answering a ping: no answer after 1 s" in failures.pop()

    run(scenario, tmp_path, workers=1, call_timeout_s=1.0, infra_attempts=1)


def test_a_group_whose_workers_keep_dying_is_a_typed_failure(tmp_path: Path) -> None:
    async def scenario(pool: RolloutPool) -> None:
        await pool.publisher.publish(publication(tmp_path, 1))
        (tmp_path / "die-w0").touch()
        groups, retried = await play(pool, 1)
        assert not retried
        assert all(t.end is EpisodeEnd.FAILED and t.reward.kind == "infra" for t in groups[0].summaries)  # type: ignore[union-attr]

    run(scenario, tmp_path, workers=1, infra_attempts=1)
