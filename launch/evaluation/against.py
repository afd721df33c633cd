"""An evaluation beside an earlier one: `rlsys eval --against FILE`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launch.evaluation.played import Number, Played, differ, read_played
from rlsys.stats import bootstrap_interval, paired_test


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """The z-test of two proportions: over all graded episodes, or of a pooled share over all that was pooled."""

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
    paired: Paired | None  # None: no task in both, or a number that is not the mean over tasks

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


def read_earlier(path: str) -> dict[str, Played]:
    """What `--against` names, by play. Raises BadInput."""
    return read_played(path, f"--against {path}")


def against(ours: Mapping[str, Played], earlier: Mapping[str, Played]) -> dict[str, Difference]:
    """By play that both have a number of."""
    return {
        name: _difference(play, play.number, earlier[name], theirs)
        for name, play in ours.items()
        if name in earlier and play.number is not None and (theirs := earlier[name].numbers.get(play.key)) is not None
    }


def _difference(ours: Played, number: Number, earlier: Played, theirs: Number) -> Difference:
    unpaired = None
    if ours.is_share:
        z, p = differ(number, theirs)
        unpaired = Unpaired(z=z, p=p)
    same = ours.measure == earlier.measure and not ours.is_pooled  # what a task has is no part of a pooled share
    both = [task for task in ours.tasks if task in earlier.tasks and same]
    differences = [ours.tasks[task] - earlier.tasks[task] for task in both]
    return Difference(
        ours=number.value,
        theirs=theirs.value,
        difference=number.value - theirs.value,
        unpaired=unpaired,
        paired=_paired(differences),
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
