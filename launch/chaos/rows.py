"""The rows of a run while it is disturbed: when the first came, how many were written, those taken again too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from launch.chaos.faults import Fault
from launch.run.rundir import METRICS


class Rows:
    """Follows metrics.jsonl, which becomes shorter where a run goes back to a checkpoint."""

    def __init__(self, run_dir: Path, stage: str) -> None:
        """stage: the first that plays; its first row is where all else is counted from."""
        self._path, self._stage = run_dir / METRICS, stage
        self._seen: tuple[int, int] | None = None  # the file's size, and when it was changed
        self.began = self.last = 0.0  # when the first row was written, and the newest, since 1970
        self.after = -1  # rows that were written after the first
        self.step_s = 0.0  # of the newest step

    def look(self) -> None:
        """Reads the file again where it has changed."""
        try:
            found = os.stat(self._path)
            if self._seen == (found.st_size, found.st_mtime_ns):
                return
            lines = self._path.read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return
        self._seen = found.st_size, found.st_mtime_ns
        for row in (json.loads(line) for line in lines if line.endswith("\n")):
            self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        time = float(row["time"])
        if time <= self.last or (not self.began and row["stage"] != self._stage):
            return
        self.began, self.last, self.step_s = self.began or time, time, float(row["time/step"])
        self.after += 1

    def is_due(self, fault: Fault, now: float) -> bool:
        """now: seconds since 1970."""
        if not self.began:
            return False
        if fault.unit == "s":
            return now >= self.began + fault.at
        whole, part = divmod(fault.at, 1.0)
        return self.after > whole or (self.after == whole and now >= self.last + part * self.step_s)
