"""Where a run's time and tokens went: `python benchmarks/account.py runs/quickstart`.

Reads a run directory and prints the table of docs/measurements.md. Medians leave out a stage's first step, which
pays for warm-up.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from statistics import median
from typing import Any

from report import Report, parser

Row = dict[str, Any]


def load(run: Path) -> tuple[list[Row], Row]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return rows, json.loads((run / "summary.json").read_text())


def middle(rows: list[Row], key: str) -> float:
    return float(median(row[key] for row in rows[1:] if key in row))


def total(rows: list[Row], key: str) -> float:
    return float(sum(row.get(key, 0.0) for row in rows))


def table(rows: list[Row], summary: Row) -> list[tuple[str, str]]:
    sft = [row for row in rows if row["stage"] == "sft"]
    rl = [row for row in rows if row["stage"] == "rl"]
    lines = [("machine", f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split('-')[0]}")]
    lines += [(f"{name}: seconds, start to end", f"{seconds:.0f}") for name, seconds in summary["stage_s"].items()]
    lines.append(("whole run, seconds", f"{summary['wall_s']:.0f}"))
    if sft:
        lines.append(("sft: seconds per step (median)", f"{middle(sft, 'time/step'):.2f}"))
        lines.append(("sft: tokens trained per second", f"{middle(sft, 'tokens/trained_per_s'):,.0f}"))
        lines.append(("sft: packed tokens per second", f"{middle(sft, 'tokens/packed_per_s'):,.0f}"))
    if rl:
        step_s = total(rl, "time/step")
        lines += [
            ("rl: seconds per step (median)", f"{middle(rl, 'time/step'):.2f}"),
            ("rl: tokens sampled per second", f"{total(rl, 'tokens/generated') / step_s:,.0f}"),
            ("rl: tokens trained per second", f"{total(rl, 'tokens/trained') / step_s:,.0f}"),
            ("rl: learner waits for rollouts", f"{total(rl, 'time/wait_rollout') / step_s:.0%} of the time"),
            ("rl: learner updates", f"{total(rl, 'time/update') / step_s:.0%} of the time"),
            ("rl: engine has work", f"{busy(rl):.0%} of the time"),
            ("publish: all of it, seconds (median)", f"{middle(rl, 'weights/publish_s'):.3f}"),
            ("publish: engine paused, seconds (median)", f"{middle(rl, 'weights/pause_s'):.3f}"),
            ("engine-learner gap, worst of all rows", f"{max(row['mismatch/probe_max'] for row in rl):.1e}"),
            ("lag, worst and mean", f"{summary['lag']['max']} and {summary['lag']['mean']:.2f}"),
            ("memory: rollout worker and engine", f"{max(row['engine/rss_mb'] for row in rl):,.0f} MiB"),
            ("memory: learner", f"{max(row['memory/learner_rss_peak_mb'] for row in rl):,.0f} MiB"),
            ("memory: driver", f"{max(row['memory/driver_rss_mb'] for row in rl):,.0f} MiB"),
        ]
    for when in ("before", "after"):
        scores = ", ".join(f"{name} {value:.3f}" for name, value in summary["eval"][when].items())
        lines.append((f"held-out accuracy {when} rl", scores))
    return lines


def busy(rl: list[Row]) -> float:
    """Share of the stage in which the engine had at least one request, from its cumulative counters."""
    first, last = rl[0], rl[-1]
    return float((last["engine/busy_s"] - first["engine/busy_s"]) / (last["engine/alive_s"] - first["engine/alive_s"]))


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("run", type=Path, help="a run directory")
    options = cli.parse_args()
    rows, summary = load(options.run)
    with Report(options) as report:
        report.head("what", "measured")
        for line in table(rows, summary):
            report.row(*line)


if __name__ == "__main__":
    main()
