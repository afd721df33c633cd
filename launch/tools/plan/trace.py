"""What a run's files say of the time of its rl steps: read from the run directory, or kept as a small record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import numpy.typing as npt

from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.episodes import Episodes, read_episodes
from launch.run_dir.table import Rows
from rlsys.errors import BadInput

FEWEST = 4  # steps that a calibration needs


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Of one step, each with its column of metrics.jsonl: seconds, and tokens where it is said. Of a column that counts
    up in a run, how much it grew in the step; nan where that is not known."""

    step_s: Annotated[float, "time/step"]
    wait_s: Annotated[float, "time/wait_rollout"]
    build_s: Annotated[float, "time/build"]
    publish_wait_s: Annotated[float, "time/publish_previous"]
    update_s: Annotated[float, "time/update"]
    export_s: Annotated[float, "time/export"]
    checkpoint_s: Annotated[float, "time/checkpoint"]
    other_s: Annotated[float, "time/other"]
    publish_s: Annotated[float, "weights/publish_s"]
    pause_s: Annotated[float, "weights/pause_s"]
    packed: Annotated[float, "tokens/packed"]  # tokens
    generated: Annotated[float, "tokens/generated"]  # tokens
    generate_s: Annotated[float, "time/episode_generate"]  # of an episode, on average
    tool_s: Annotated[float, "time/episode_tool"]
    score_s: Annotated[float, "time/episode_score"]
    busy_s: Annotated[float, "engine/busy_s"]  # of all engines
    engine_cpu_s: Annotated[float, "engine/cpu_s"]
    worker_cpu_s: Annotated[float, "rollout/cpu_s"]


COLUMNS = {name: hint.__metadata__[0] for name, hint in get_type_hints(StepTimes, include_extras=True).items()}
CUMULATIVE = ("busy_s", "engine_cpu_s", "worker_cpu_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSetting:
    """How a run was set up."""

    groups_per_step: int
    group_size: int
    max_policy_lag: int
    workers: int
    ranks: int
    max_num_seqs: int
    in_flight: int | None
    gpus: bool
    parameters: int | None = None  # None of a run of an earlier version


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One rl stage, step by step."""

    name: str
    stage: str
    setting: TraceSetting
    steps: Sequence[StepTimes]
    groups: Sequence[Sequence[Sequence[int]]]  # of each step: the sampled tokens of each episode of its groups

    def part(self, first: int, last: int) -> Trace:
        """Steps from `first` to before `last`, counted from 0."""
        return replace(self, steps=self.steps[first:last], groups=self.groups[first:last])

    def and_then(self, other: Trace) -> Trace:
        """Both, of the same setting."""
        return replace(self, steps=[*self.steps, *other.steps], groups=[*self.groups, *other.groups])

    @property
    def seconds(self) -> Sequence[float]:
        """Of each step, without checkpoints."""
        return [step.step_s - step.checkpoint_s for step in self.steps]


def read_trace(path: Path, stage: str | None = None) -> Trace:
    """Of an rl stage, by default the last that has steps. Raises BadInput for what is no run directory, or has too
    few."""
    run = read_directory(path)
    return trace_of(run, read_episodes(run), stage)


def trace_of(run: RunDirectory, episodes: Episodes, stage: str | None = None) -> Trace:
    """As `read_trace`, of what was read before. Raises BadInput."""
    path = run.path
    stages = [spec for spec in run.config["stages"] if spec.get("kind") == "rl" and stage in (None, spec["name"])]
    config = next((spec for spec in reversed(stages) if len(run.rows.of_stage(str(spec["name"])))), None)
    if config is None:
        raise BadInput("it has no step of an rl stage", where=path)
    name = str(config["name"])
    rows = run.rows.of_stage(name)
    if len(rows) < FEWEST + 1:
        raise BadInput(f"{len(rows)} steps of stage {name}", where=path, expected=f"at least {FEWEST + 1}")
    return Trace(
        name=path.name,
        stage=name,
        setting=_setting(run, config),
        steps=_steps(rows)[1:],  # the first one fills the engines, and its busy time is of evaluations too
        groups=_groups(episodes, rows)[1:],
    )


def _setting(run: RunDirectory, stage: Mapping[str, Any]) -> TraceSetting:
    def look(section: str, key: str) -> Any:
        overrides = stage.get(section) or {}
        return overrides[key] if key in overrides else (run.config.get(section) or {}).get(key)

    counts = {
        "groups_per_step": look("loop", "groups_per_step"),
        "group_size": look("loop", "group_size"),
        "max_policy_lag": look("loop", "max_policy_lag"),
        "workers": look("rollout", "workers"),
        "ranks": look("learner", "ranks"),
        "max_num_seqs": look("engine", "max_num_seqs"),
    }
    for key, value in counts.items():
        if type(value) is not int or value < (0 if key == "max_policy_lag" else 1):
            raise BadInput(f"its config.yaml has no whole number as {key}", where=run.path)
    in_flight = look("rollout", "in_flight")
    gpus = len(run.rows.known("memory/learner_gpu_peak_mb")) > 0
    count = run.record.get("parameters")
    return TraceSetting(
        **counts,
        in_flight=in_flight if type(in_flight) is int else None,
        gpus=gpus,
        parameters=count if type(count) is int else None,
    )


def _steps(rows: Rows) -> list[StepTimes]:
    columns = {key: rows.column(name) for key, name in COLUMNS.items()}
    filled = {key: _growth(column) if key in CUMULATIVE else np.nan_to_num(column) for key, column in columns.items()}
    return [StepTimes(**{key: float(column[at]) for key, column in filled.items()}) for at in range(len(rows))]


def _growth(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """nan at the first row, and where it fell: another process began to count."""
    grown = np.diff(column)
    return np.concatenate([[math.nan], np.where(grown > 0, grown, math.nan)])


def _groups(episodes: Episodes, rows: Rows) -> list[list[list[int]]]:
    """[step][group][episode]"""
    by_step: dict[int, dict[int, list[int]]] = {int(step): {} for step in rows.step}
    training = episodes.in_training
    for at in np.flatnonzero(training):
        step, tokens = int(episodes.columns["step"][at]), int(episodes.columns["tokens"][at])
        if step in by_step and tokens > 0:
            by_step[step].setdefault(int(episodes.columns["sequence"][at]), []).append(tokens)
    return [list(by_step[int(step)].values()) for step in rows.step]
