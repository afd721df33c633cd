"""What stands in the lines of a run, as records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launch.run_dir.lines import read_tail
from launch.run_dir.names import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """The newest row of metrics.jsonl."""

    step: int
    stage: str  # "" where the row does not say it
    time: float | None  # when it was written, since 1970; a row of an earlier rlsys does not say it


def read_last_step(run: Path) -> LastStep | None:
    """From the end of the file alone. None of a run that has taken no step."""
    row = next((row for row in reversed(list(read_tail(run / METRICS))) if type(row.get("step")) is int), None)
    if row is None:
        return None
    stage, time = row.get("stage"), row.get("time")
    return LastStep(
        step=row["step"],
        stage=stage if isinstance(stage, str) else "",
        time=float(time) if type(time) in (int, float) else None,
    )
