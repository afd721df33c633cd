"""Columns of a row that say what workers and engines did."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from actors.specs import IDLE
from actors.worker import WorkerStatus
from launch.driver.stages.rollout_metrics import rollout_metrics


def test_times_and_memory_are_summed_over_the_workers() -> None:
    def status(scale: float) -> WorkerStatus:
        return WorkerStatus(
            pid=1, log="", version=0, generated_tokens=0, busy_s=scale, alive_s=2 * scale, rss_mb=3 * scale,
            engine_cpu_s=4 * scale, own_cpu_s=5 * scale, engine=IDLE, tools={},
        )  # fmt: skip

    async def statuses() -> list[WorkerStatus]:
        return [status(1.0), status(10.0)]

    run: Any = SimpleNamespace(pool=SimpleNamespace(status=statuses, restarts={"rollout:0": 2}, lost=1))
    row = asyncio.run(rollout_metrics(run))
    names = ("engine/busy_s", "engine/alive_s", "engine/rss_mb", "engine/cpu_s", "rollout/cpu_s")
    assert [row[name] for name in names] == [11.0, 22.0, 33.0, 44.0, 55.0]
    assert (row["engine/restarts"], row["engine/lost"]) == (2.0, 1)
