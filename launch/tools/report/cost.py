"""What a run cost: hours of GPUs that were held, also while they waited; of cores where there are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from launch.run_dir.directory import RunDirectory
from launch.tools.report.facts import count_gpus, holds_gpus
from launch.tools.report.tables import make_table
from launch.tools.report.words import number, total


def hours_held(run: RunDirectory) -> float:
    """From the start of each attempt to its last row or event; of a run without times its own seconds."""
    times = run.rows.known("time")
    starts = [start.time for start in run.starts if start.time is not None]
    if not len(times) or not starts:
        seconds = run.rows.known("wall_s")
        return float(seconds.max()) / 3600 if len(seconds) else 0.0
    noted = [event.time for event in run.events_of() if 0 < event.time < 1e12]
    times = np.concatenate([times, np.array(noted, float)])
    total_s = 0.0
    for begin, end in zip(starts, [*starts[1:], float("inf")], strict=True):
        attempt_times = times[(times >= begin) & (times < end)]
        total_s += float(attempt_times.max()) - begin if len(attempt_times) else 0.0
    return total_s / 3600


def make_cost_table(run: RunDirectory, price: float | None) -> dict[str, Any] | None:
    """A table. price: of one GPU for an hour, in a currency of the reader's."""
    hours, gpus, trained = hours_held(run), count_gpus(run), total(run.rows.known("tokens/trained"))
    if not hours:
        return None
    rows: list[list[Any]] = [["hours", number(hours)]]
    with_gpus = holds_gpus(run) and gpus > 0
    count, unit = (gpus, "GPU") if with_gpus else (_count_cores(run), "core")
    if count:
        rows.append([f"{unit}s held", number(count)])
        rows.append([f"{unit} hours", number(hours * count)])
        if trained:
            rows.append([f"{unit} hours per 1,000 trained tokens", number(1000 * hours * count / trained)])
    if price is not None and with_gpus:
        rows.append([f"cost, at {number(price)} for a GPU hour", f"{hours * gpus * price:,.2f}"])
        if trained:
            rows.append(["cost per 1,000 trained tokens", number(1000 * hours * gpus * price / trained)])
    if price is not None and not with_gpus:
        rows.append(["cost", "no GPU was held, so --price has nothing to count"])
    return make_table("Cost", ("", ""), rows)


def _count_cores(run: RunDirectory) -> int:
    return sum(node.cores or 0 for node in run.newest_start.nodes)
