"""What a tracker is: a place outside of the run directory that shows a run's numbers and some of its episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from rlsys.config.output import WandbConfig
from rlsys.types import Trajectory

STEP = "step"  # the x axis of every chart: training steps over all stages


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """What a tracker is made with."""

    directory: Path  # of the run: a tracker may write to a folder of its own in it
    name: str  # how the run is listed: "quickstart seed 0"
    config: Mapping[str, Any]  # resolved and nested; `stages` by their names
    step: int  # training steps that earlier processes took: the rows after it are of this one
    settings: WandbConfig  # section `wandb`


class Tracker(Protocol):
    """The methods of a tracker, each called in one thread of the tracker's own.

    What raises is reported once, and the tracker gets nothing more; what blocks holds up no step.
    """

    def log(self, row: Mapping[str, Any]) -> None:
        """One row of metrics.jsonl: numbers by key, `step` among them, and a few texts such as `stage`."""

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        """An evaluation on held-out tasks after `step` steps; name: "greedy", or "hotpotqa/greedy" of a set."""

    def episodes(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        """Some of the step's episodes, from the lowest reward to the highest: `wandb.samples` of them."""

    def finish(self) -> None:
        """The run ends, well or not: write what is left. Called once, also after a method has raised."""


def flatten_config(text: str) -> dict[str, Any]:
    """The configuration as keys that can be filtered and grouped by, `learner.lr`; its stages, and several
    environments, by their names."""
    values: dict[str, Any] = yaml.safe_load(text)
    envs = {"envs": {env["label"]: env for env in values["envs"]}} if values.get("envs") else {}
    return values | envs | {"stages": {stage["name"]: stage for stage in values.get("stages", ())}}


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row without its step, each in a group: `reward/mean`; `run/version` for a key without one.

    Trackers sort charts into sections by what stands before the first slash.
    """
    return {
        key if "/" in key else f"run/{key}": value
        for key, value in row.items()
        if isinstance(value, int | float) and key != STEP
    }


def held_out(name: str, values: Mapping[str, float | None]) -> dict[str, float]:
    """The numbers of an evaluation: `held_out/greedy/accuracy`."""
    return {f"held_out/{name}/{key}": value for key, value in values.items() if value is not None}
