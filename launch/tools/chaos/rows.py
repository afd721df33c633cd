"""How far a run is while it is disturbed: its rows of metrics, those taken again too, and its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from launch.run_dir.names import METRICS
from launch.run_dir.rows import LoggedRow, read_steps
from launch.tools.chaos.faults import Fault

HALF_WRITTEN = "checkpoints/.step-*"


class Rows:
    """Follows metrics.jsonl, which becomes shorter where a run goes back to a checkpoint, and checkpoints while they
    are written."""

    def __init__(self, run_dir: Path, stage: str) -> None:
        """stage: the first that plays; its first row is where all else is counted from."""
        self._run_dir, self._path, self._stage = run_dir, run_dir / METRICS, stage
        self._half: set[tuple[str, int]] = set()  # checkpoints that are not whole, by name and inode
        self._seen: tuple[int, int] | None = None  # the file's size, and when it was changed
        self.began = self.last = 0.0  # when the first row was written, and the newest, since 1970
        self.newest = 0.0  # when a row of any stage was written, since 1970
        self.after = -1  # rows that were written after the first
        self.step_s = 0.0  # of the newest step
        self.checkpoints = 0  # that were begun after the first row
        self.saving = False  # one is written now, by a process that lives

    def look(self) -> None:
        """Reads the file again where it has changed."""
        self._look_at_rows()
        half = set(self._half_written())
        new = half - self._half
        self.saving = bool(new) or (self.saving and half == self._half)
        self.checkpoints += len(new) if self.began else 0
        self._half = half

    def leave(self) -> None:
        """The process is gone: what it had half written is no checkpoint that is being written."""
        self.saving = False

    def _half_written(self) -> Iterator[tuple[str, int]]:
        for path in self._run_dir.glob(HALF_WRITTEN):
            with suppress(OSError):  # whole meanwhile
                yield path.name, path.stat().st_ino

    def _look_at_rows(self) -> None:
        try:
            stat = os.stat(self._path)
            if self._seen == (stat.st_size, stat.st_mtime_ns):
                return
            rows = list(read_steps(self._run_dir))
        except FileNotFoundError:
            return
        self._seen = stat.st_size, stat.st_mtime_ns
        for row in rows:
            self._take(row)

    def _take(self, row: LoggedRow) -> None:
        self.newest = max(self.newest, row.time)
        if row.time <= self.last or (not self.began and row.stage != self._stage):
            return
        self.began, self.last, self.step_s = self.began or row.time, row.time, row.number("time/step")
        self.after += 1

    def is_due(self, fault: Fault, now: float) -> bool:
        """now: seconds since 1970."""
        if not self.began:
            return False
        if fault.unit == "checkpoint":
            return self.saving and self.checkpoints >= fault.at
        if fault.unit == "s":
            return now >= self.began + fault.at
        steps, part = divmod(fault.at, 1.0)
        return self.after > steps or (self.after == steps and now >= self.last + part * self.step_s)
