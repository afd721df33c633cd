"""What the rollout workers say of themselves for the row of a step: engines, tools, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil

from actors.specs import IDLE
from envs.services.stats import ToolStats
from envs.services.stats import merge as merge_stats
from launch.driver.run.run import Run
from rlsys.metrics import merge, values


async def rollout_metrics(run: Run) -> Mapping[str, float]:
    statuses = await run.pool.status()
    gauges = values(merge([IDLE.row(), *(status.engine.row() for status in statuses)]))
    return (
        tool_metrics([status.tools for status in statuses])
        | gauges
        | {
            # Cumulative, as are the next three.
            "engine/busy_s": sum(status.busy_s for status in statuses),
            "engine/alive_s": sum(status.alive_s for status in statuses),
            "engine/cpu_s": sum(status.engine_cpu_s for status in statuses),
            "rollout/cpu_s": sum(status.own_cpu_s for status in statuses),
            "memory/driver_rss_mb": psutil.Process().memory_info().rss / 2**20,
            "engine/rss_mb": sum(status.rss_mb for status in statuses),
            "worlds/ended": float(sum(len(status.worlds_lost) for status in statuses)),
            "engine/restarts": float(sum(run.pool.restarts.values())),
            "engine/lost": float(run.pool.lost),
        }
    )


def tool_metrics(workers: Sequence[Mapping[str, ToolStats]]) -> dict[str, float]:
    """Every tool over all workers, counted since their start."""
    row: dict[str, float] = {}
    for tool in sorted({tool for stats in workers for tool in stats}):
        total = merge_stats(stats[tool] for stats in workers if tool in stats)
        row |= {f"tool/{tool}/{name}": value for name, value in total.row().items()}
    return row
