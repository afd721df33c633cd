"""What stands in the lines of a run, as records: a row of metrics or of an evaluation, and an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.run_dir.lines import read_lines, read_tail
from launch.run_dir.names import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRow:
    """A line of metrics.jsonl, or of evaluations.jsonl."""

    step: int  # over all stages
    stage: str  # "" where the line does not say it
    values: Mapping[str, Any]  # all that the line has

    def number(self, key: str) -> float:
        """0 where the line has none."""
        return number_of(self.values, key)

    @property
    def time(self) -> float:
        """When it was written, in seconds since 1970; 0 where an earlier rlsys did not say it."""
        return self.number("time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of events.jsonl, as `launch.driver.observe.events` writes it; `decode_lenient` reads it."""

    time: float = 0.0  # since 1970; 0 where the line does not say it
    step: int | None = None
    stage: str = ""
    kind: str = ""
    who: str = ""  # the part of the run
    sign: str = ""  # of a health event; "" where an earlier rlsys did not say it
    text: str = ""
    detected_s: float | None = None
    recovered_s: float | None = None
    groups: float | None = None  # that are played again


def number_of(values: Mapping[str, Any], key: str) -> float:
    """0 where there is none."""
    value = values.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def parse_row(values: Mapping[str, Any]) -> LoggedRow | None:
    """None of a line that names no step."""
    step, stage = values.get("step"), values.get("stage")
    if type(step) is not int:
        return None
    return LoggedRow(step=step, stage=stage if isinstance(stage, str) else "", values=values)


def read_steps(run: Path) -> Iterator[LoggedRow]:
    """The rows of metrics.jsonl; none where there is no file. Raises BadInput for a damaged line."""
    path = run / METRICS
    rows = (parse_row(values) for values in (read_lines(path) if path.exists() else ()))
    return (row for row in rows if row is not None)


def read_last_step(run: Path) -> LoggedRow | None:
    """The newest row of metrics.jsonl, from the end of the file alone; None where no step was taken."""
    rows = (parse_row(values) for values in reversed(list(read_tail(run / METRICS))))
    return next((row for row in rows if row is not None), None)
