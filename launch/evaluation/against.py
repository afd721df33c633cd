"""An evaluation beside an earlier one: `rlsys eval --against FILE`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.evaluation.results import Result
from rlsys.errors import BadInput
from rlsys.jsonl import json_object
from rlsys.stats import bootstrap_interval, paired_test, proportions_z_test


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPlay:
    values: Mapping[str, float]  # by metric
    graded: int  # episodes
    tasks: Mapping[str, float]  # the measure, by task


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """The z-test of two proportions over all graded episodes."""

    z: float
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Over the tasks of both: the mean difference with its 95 % interval, and the z-test that it is 0."""

    tasks: int
    difference: float
    low: float
    high: float
    p: float
    z: float | None  # None: all differences are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    ours: float
    theirs: float
    difference: float
    unpaired: Unpaired | None  # None: no accuracies
    paired: Paired | None  # None: no task in both

    def json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}

    def told(self) -> str:
        said = f"{self.ours:.3f}, there {self.theirs:.3f}"
        if self.unpaired:
            said += f"; z-test p = {self.unpaired.p:.3g}"
        if self.paired:
            between = f"{self.paired.difference:+.3f} ({self.paired.low:+.3f} to {self.paired.high:+.3f})"
            said += f"; on the {self.paired.tasks} tasks of both {between}, p = {self.paired.p:.3g}"
        return said


def read_earlier(path: str) -> dict[str, EarlierPlay]:
    """What `--against` names, by play. Raises BadInput."""
    try:
        found = json_object(Path(path).read_bytes(), path)
    except OSError as error:
        raise BadInput(f"--against {path}: cannot be read ({error.strerror})") from error
    if not isinstance(found.get("plays"), dict):
        raise BadInput(f'--against {path}: no "plays": expected what rlsys eval --output has written')
    return {name: _earlier(found, name) for name in found["plays"]}


def _earlier(found: Mapping[str, Any], name: str) -> EarlierPlay:
    play = found["plays"][name]
    values = {key: float(metric["value"]) for key, metric in play["metrics"].items()}
    return EarlierPlay(
        values=values, graded=found["episodes"][name] - found["failures"][name], tasks=dict(play["tasks"])
    )


def against(results: Mapping[str, Result], earlier: Mapping[str, EarlierPlay]) -> dict[str, Difference]:
    """By play that both have a number of."""
    return {
        name: _difference(ours, ours.value, earlier[name])
        for name, ours in results.items()
        if name in earlier and ours.value is not None and ours.key in earlier[name].values
    }


def _difference(result: Result, ours: float, earlier: EarlierPlay) -> Difference:
    theirs, unpaired = earlier.values[result.key], None
    if result.measure == "accuracy":
        graded = result.episodes - result.failures
        z, p = proportions_z_test(ours * graded, graded, theirs * earlier.graded, earlier.graded)
        unpaired = Unpaired(z=z, p=p)
    differences = [ours - earlier.tasks[task] for task, ours in result.tasks.items() if task in earlier.tasks]
    return Difference(
        ours=ours, theirs=theirs, difference=ours - theirs, unpaired=unpaired, paired=_paired(differences)
    )


def _paired(differences: list[float]) -> Paired | None:
    if not differences:
        return None
    (z, p), (low, high) = paired_test(differences), bootstrap_interval(differences)
    mean = math.fsum(differences) / len(differences)
    return Paired(tasks=len(differences), difference=mean, low=low, high=high, p=p, z=z if math.isfinite(z) else None)


def against_lines(found: Mapping[str, Difference], path: str) -> list[str]:
    if not found:
        return [f"against {path}: no play with a number in both"]
    return [f"against {path}: {name} {each.told()}" for name, each in found.items()]
