"""TensorBoard: event files in the run directory. `tensorboard --logdir runs` shows all runs below it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from launch.driver.observe.trackers.base import STEP, TrackedRun, held_out, numbers
from launch.driver.observe.trackers.samples import COLUMNS, cells
from rlsys.types import Trajectory

FOLDER = "tensorboard"


class TensorBoardTracker:
    def __init__(self, run: TrackedRun) -> None:
        # TensorBoard then hides what an earlier process wrote of the steps that are taken again.
        purge = run.step + 1 if run.step else None
        self._writer = SummaryWriter(str(run.directory / FOLDER), purge_step=purge)
        self._writer.add_text("config", _as_code(json.dumps(dict(run.config), indent=2)), run.step)

    def log(self, row: Mapping[str, Any]) -> None:
        self._write(numbers(row), row[STEP])

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        self._write(held_out(name, values), step)

    def episodes(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        rows = [zip(COLUMNS, [step, *cells(trajectory)], strict=True) for trajectory in trajectories]
        texts = ("\n".join(f"{column}: {cell}" for column, cell in row) for row in rows)
        self._writer.add_text("samples", "\n\n---\n\n".join(map(_as_code, texts)), step)
        self._writer.flush()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()  # a killed run has its last row

    def finish(self) -> None:
        self._writer.close()


def _as_code(text: str) -> str:
    """TensorBoard draws texts as Markdown: an indented block is shown as it is, markup of a model's included."""
    return "\n".join("    " + line for line in text.splitlines())
