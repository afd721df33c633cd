"""What noise the start-up canary takes, what a delivery may be off by, and how far the long sample reaches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.weights.check import LEAST_LIMIT, LoadCheck, WeightUpdate
from actors.worker import LoadResult
from launch.run.weight_sync import NOISES, WeightSync, long_probe_length
from rlsys.errors import RunFailed
from rlsys.probe import Probe, ProbeValues
from rlsys.system.device import RoundingUnits
from rlsys.system.weight_folder import WeightManifest

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
    assert [each.version for each in pool.updates] == [-1, -2]
    # What is tried is written nowhere: a version takes as much memory as the weights.
    assert [(probe.noise, probe.seed) for probe in learner.exported] == [(noise, 1), (noise, 2)]


@pytest.mark.parametrize("broken", [{0.25: (float("nan"), float("nan"))}, {}, {each: (2.0, 1.0) for each in NOISES}])
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
