"""trackio: a local database in the user's home, which `trackio show` draws; or a Space, by its own variables."""

from __future__ import annotations

import contextlib
import contextvars
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import trackio

from launch.driver.observe.trackers.base import STEP, TrackedRun, held_out, numbers
from launch.driver.observe.trackers.identity import run_id
from launch.driver.observe.trackers.samples import COLUMNS, cells
from rlsys.types import Trajectory

PROJECT = "rlsys"
ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")  # trackio's variables: where it uploads to


class TrackioTracker:
    def __init__(self, run: TrackedRun) -> None:
        listed = f"{run.settings.name or run.name} {run_id(run.directory, 'trackio_id')}"  # its name identifies a run
        # In a context of its own: of the current one trackio ends the run once more, aloud, when Python ends.
        with contextlib.redirect_stdout(io.StringIO()):  # a welcome in the middle of the terminal's lines
            self._run = contextvars.copy_context().run(
                trackio.init,
                project=run.settings.project or PROJECT,
                name=listed,
                group=run.settings.group,
                config=dict(run.config),
                resume="allow",
                embed=False,
            )
        place = next(filter(None, map(os.environ.get, ELSEWHERE)), None)
        self.uploads = place and f"trackio uploads metrics, the configuration and sample episodes to {place}"

    def log(self, row: Mapping[str, Any]) -> None:
        self._run.log(numbers(row), step=row[STEP])

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        self._run.log(held_out(name, values), step=step)

    def episodes(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        table = trackio.Table(columns=list(COLUMNS), data=[[step, *cells(trajectory)] for trajectory in trajectories])
        self._run.log({"samples": table}, step=step)

    def finish(self) -> None:
        self._run.finish()  # in a thread, which may be late: what it prints is not caught, for stdout is everybody's
