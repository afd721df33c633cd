"""What noise the start-up canary takes, what a delivery may be off by, and how far the long sample reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

import pytest

from actors.pool import RolloutPool
from actors.weights.check import LEAST_LIMIT, LoadCheck, WeightUpdate
from actors.worker import LoadResult
from actors.worker_registry import State
from launch.driver.run.first_delivery import cut_probe, long_probe_length
from launch.driver.run.weight_sync import NOISES, SENT_AGAIN, WeightSync
from rlsys.errors import LearnerLost, RunFailed
from rlsys.probe import Probe, ProbeValues
from rlsys.system.device import RoundingUnits
from rlsys.system.weight_folder import WeightManifest
from tests.fakes.fake_ray import fake_ray as fake_ray
from tests.fakes.fake_workers import FakeDistributor, Script, refused, until
from tests.fakes.fake_workers import run as play

pytestmark = pytest.mark.usefixtures("fake_ray")

UNITS = RoundingUnits(products=2**-8, rest=2**-8)
# SmolLM2-135M by noise: (nats per token that it moves, that bfloat16's rounding moves then)
SMOLLM2 = {0.0: (0.0, 0.06), 0.5: (22.0, 2.2), 0.25: (7.2, 0.18), 0.12: (1.9, 0.08)}


class Learner:
    """Gives what a table says for a noise; `moves` and `rounds` are nats per token."""

    node_ids = ()

    def __init__(self, table: dict[float, tuple[float, float]]) -> None:
        self.table, self.exported = table, list[Probe]()

    async def logprobs(self, samples: Any) -> Any:
        return [[-1.0] * (len(ids) - 1) for ids in samples]

    async def measure(self, probe: Probe) -> ProbeValues:
        moves, rounds = self.table.get(probe.noise, (0.0, 0.0))
        lengths = [len(ids) - 1 for ids in probe.samples]
        return ProbeValues(
            logprobs=[[-1.0 - moves] * length for length in lengths],
            rounded=[[-1.0 - moves - rounds] * length for length in lengths],
        )

    async def export(self, folder: Any, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        self.exported.append(probe)
        return WeightManifest(version=version), await self.measure(probe)


class Pool:
    carried = (0, 0.0)

    def __init__(self) -> None:
        self.updates: list[WeightUpdate] = []
        self.gone = asyncio.Event()

    @property
    def publisher(self) -> Pool:
        return self

    async def folder_on(self, nodes: Any) -> None: ...

    async def publish(self, update: WeightUpdate) -> list[LoadCheck]:
        self.updates.append(update)
        delivery = LoadResult(version=update.version, seconds=0.0, probe_logprobs=update.expected)
        return [LoadCheck(delivery=delivery, gap_mean=0.0, gap_max=0.0)]


def make_sync(table: dict[float, tuple[float, float]], configured: float | None = None) -> tuple[Any, Any, Any]:
    learner, pool = Learner(table), Pool()
    sync = WeightSync(learner, pool, UNITS, configured)  # type: ignore[arg-type]
    sync.probe = ((1, 2, 3), (4, 5))
    return sync, learner, pool


@pytest.mark.parametrize(
    ("table", "noise", "limit"),
    [
        (SMOLLM2, 0.25, 0.36),  # 7.2 is forty times .18
        ({0.0: (0, 0.1), 0.25: (20.0, 3.0), 0.5: (22.0, 8.0), 0.12: (3.0, 0.15)}, 0.12, 0.3),  # deeper: chaos at .25
        ({0.0: (0, 0.1), 0.25: (0.1, 0.002), 0.5: (0.4, 0.004)}, 0.5, 0.008),  # a small adapter: more is clearer
        ({0.0: (0, 0), 0.25: (1.5, 1e-5)}, 0.25, LEAST_LIMIT),  # float32
        ({0.0: (0, 0.1), 0.25: (1.0, 0.2), 0.06: (0.5, 0.08)}, 0.06, 0.16),  # none is clear: the best
    ],
)
def test_the_canary_takes_the_noise_that_stands_clear_of_rounding(table: Any, noise: float, limit: float) -> None:
    sync, learner, pool = make_sync(table)
    asyncio.run(sync.canary())
    (update,) = pool.updates
    assert update.limit == pytest.approx(limit)
    asyncio.run(sync.canary())
    assert [entry.version for entry in pool.updates] == [-1, -2]
    # What is tried is written nowhere: a version takes as much memory as the weights.
    assert [(probe.noise, probe.seed) for probe in learner.exported] == [(noise, 1), (noise, 2)]


@pytest.mark.parametrize("broken", [{0.25: (float("nan"), float("nan"))}, {}, {noise: (2.0, 1.0) for noise in NOISES}])
def test_a_change_that_shows_nothing_ends_the_run(broken: Any) -> None:
    sync, _, pool = make_sync({0.0: (0.0, 0.1)} | broken)
    with pytest.raises(RunFailed, match="could not show a stale engine"):
        asyncio.run(sync.canary())
    assert pool.updates == []


@pytest.mark.parametrize(("configured", "limit"), [(None, 0.12), (0.5, 0.5)])
def test_a_delivery_may_be_off_by_twice_its_rounding_or_by_what_the_key_says(configured: Any, limit: float) -> None:
    sync, _, _ = make_sync(SMOLLM2, configured)
    update = asyncio.run(sync.export(7))
    assert (update.limit, update.tail_limit) == (pytest.approx(limit), None)
    long = asyncio.run(sync.export(7, long=tuple(range(1000))))
    assert long.probe[-1] == tuple(range(1000)) and [long.tail_limit, long.limit] == pytest.approx([limit] * 2)
    asyncio.run(sync.publish(update))
    assert sync.gap["mismatch/probe_limit"] == pytest.approx(limit)


def test_no_delivery_may_be_off_by_what_a_stale_engine_would_be_off_by() -> None:
    """Numbers so coarse that twice their rounding, 6 nats, is more than half of what the noise moves, 7.2."""
    sync, _, _ = make_sync(SMOLLM2 | {0.0: (0.0, 3.0)})
    asyncio.run(sync.canary())
    assert asyncio.run(sync.export(7)).limit == pytest.approx(3.6)


@pytest.mark.parametrize("lengths", [[1], [12, 11, 10] * 30, [11], [63, 64, 65, 2], [500] * 9, [0, 7, 0]])
def test_the_probe_has_as_many_tokens_whatever_the_length_of_the_prompts(lengths: list[int]) -> None:
    texts = [tuple(range(1000 * number, 1000 * number + length)) for number, length in enumerate(lengths)]
    probe = cut_probe(iter(texts), 64)
    assert [len(sample) for sample in probe] == [64] * 4
    assert all(token in chain.from_iterable(texts) for sample in probe for token in sample)
    if min(lengths) >= 64:
        assert probe == tuple(ids[-64:] for ids in texts[:4])


@pytest.mark.parametrize("count", [1, 2, 40])
def test_prompts_that_end_alike_are_compared_where_they_differ(count: int) -> None:
    rules = tuple(range(100, 180))  # longer than a sample
    texts = [(*range(1000 * number, 1000 * number + 150), *rules) for number in range(1, 1 + count)]
    probe = cut_probe(texts, 64)
    assert [len(sample) for sample in probe] == [64] * 4 and len(set(probe)) == 4


def test_prompts_without_a_token_make_no_probe() -> None:
    assert cut_probe([(), ()], 64) == () == cut_probe([], 64)


@pytest.mark.parametrize(
    ("window", "words", "at_once", "length"),
    [
        (1024, 49_152, None, 1023),  # SmolLM2 on two cores
        (16_384, 152_064, None, 4096),  # a 7B: vLLM takes 2,048 tokens at a time, 3.1 GB of logits
        (16_384, 256_000, None, 1258),  # 3 GiB of logits, 10 bytes each
        (16_384, 152_064, 8192, 2118),
    ],
)
def test_the_long_sample_fits_the_window_and_what_the_engine_has_left(
    window: int, words: int, at_once: int | None, length: int
) -> None:
    assert long_probe_length(window, words, at_once) == length


class Exporter(Learner):
    """Sends a new manifest each time; `died` is what a look at its ranks shows."""

    died: RunFailed | None = None

    async def check(self, what: str) -> None:
        if self.died is not None:
            raise self.died

    async def export(self, folder: Any, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        if self.died is not None:
            raise RunFailed("its node has no weight store")
        return await super().export(folder, version, probe)


def play_gone(tries: int, then: Callable[[RolloutPool, Any, Any], Awaitable[None]], workers: int = 2) -> Exporter:
    """`then` gets a pool whose workers find a version nowhere `tries` times, its sync, and the learner."""
    learner, left = Exporter({0.0: (0.0, 0.0)}), [tries]

    async def brings(published: WeightManifest) -> None:
        if left[0]:
            left[0] -= 1
            refused()

    async def scenario(pool: RolloutPool) -> None:
        sync = WeightSync(learner, pool, UNITS, 10.0)  # type: ignore[arg-type]
        sync.probe = ((1, 2),)
        await then(pool, sync, left)

    play(Script(), scenario, workers=workers, distributor=FakeDistributor(brings))
    return learner


def test_a_version_that_is_on_no_node_is_exported_again() -> None:
    async def then(pool: RolloutPool, sync: WeightSync, left: list[int]) -> None:
        await sync.publish(await sync.export(1))
        assert [worker.state for worker in pool.workers] == [State.READY] * 2
        left[0] = 1  # and once more, for a worker that comes back while an update waits for rollouts
        rollouts = asyncio.Event()
        waiting = asyncio.create_task(sync.through(rollouts.wait()))
        pool.mark_dead(pool.workers[0], pool.workers[0].handle, RunFailed("killed"))
        await until(lambda: pool.workers[0].life.restarts == 1 and pool.workers[0].state is State.READY)
        assert not waiting.done()
        rollouts.set()
        assert await waiting is True

    learner = play_gone(2, then)
    assert len(learner.exported) == 3


def test_a_version_that_does_not_come_however_often_it_is_sent_ends_the_run() -> None:
    async def then(pool: RolloutPool, sync: WeightSync, left: list[int]) -> None:
        with pytest.raises(RunFailed, match="version 1 reaches no rollout worker: no way there"):
            await sync.publish(await sync.export(1))
        assert pool.restarts == {"w0": 0, "w1": 0}

    assert len(play_gone(1000, then).exported) == 1 + SENT_AGAIN


def test_a_learner_that_is_gone_too_is_found_dead_though_its_node_says_so_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def then(pool: RolloutPool, sync: WeightSync, left: list[int]) -> None:
        update = await sync.export(1)
        monkeypatch.setattr(Exporter, "died", LearnerLost("learner sending version 1 again: a rank died"))
        with pytest.raises(LearnerLost):
            await sync.publish(update)

    assert len(play_gone(1000, then).exported) == 1


def test_a_wait_that_is_given_up_while_it_sends_again_leaves_that_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(pool: RolloutPool, sync: WeightSync, left: list[int]) -> None:
        update = await sync.export(1)
        export, sends = Exporter.export, asyncio.Event()

        async def slow(*args: Any) -> Any:
            if not sends.is_set():
                sends.set()
                await asyncio.Event().wait()
            return await export(*args)

        monkeypatch.setattr(Exporter, "export", slow)
        taking = asyncio.create_task(sync.through(asyncio.Event().wait()))
        await asyncio.sleep(0)  # so that it is the first to wait
        publishing = asyncio.create_task(sync.publish(update))
        await sends.wait()
        taking.cancel()
        await publishing
        assert [worker.state for worker in pool.workers] == [State.READY] * 2

    play_gone(2, then)


def test_older_weights_are_not_sent_once_the_learner_has_newer_ones() -> None:
    async def then(pool: RolloutPool, sync: WeightSync, left: list[int]) -> None:
        await sync.publish(await sync.export(1))
        second = await sync.export(2)
        left[0] = 1
        waiting = asyncio.create_task(sync.through(asyncio.Event().wait()))
        pool.mark_dead(pool.workers[0], pool.workers[0].handle, RunFailed("killed"))
        await until(lambda: pool.workers[0].life.restarts == 1 and pool.workers[0].state is State.STALE and not left[0])
        await sync.publish(second)
        assert pool.workers[0].state is State.READY
        waiting.cancel()

    assert len(play_gone(0, then, workers=1).exported) == 2
