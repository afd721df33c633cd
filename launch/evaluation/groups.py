"""What several sets say together: the mean of a group with its increase over an earlier evaluation, and whole tasks
beside their single steps.

Does who can do the steps do the task (arXiv 2506.00845, section 5.2)? A set with `steps_of` asks for the steps of
another set's tasks one by one; the field `parent` of each names its task.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from launch.evaluation.played import EvalResult, differ

RIGHT = 1 - 1e-9  # of a task: every step right, every constraint satisfied


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """Of the sets of one group, each counted once."""

    sets: int
    mean: float
    increase: float | None = None  # mean of ours / theirs - 1 over the sets of both; None where theirs has a 0, or none

    def told(self) -> str:
        more = "" if self.increase is None else f", average increase {self.increase:+.1%}"
        return f"mean {self.mean:.3f} over {self.sets} sets{more}"


def averages(ours: Mapping[str, EvalResult], theirs: Mapping[str, EvalResult] | None = None) -> dict[str, Average]:
    """By group and way of playing: {"real/greedy": ..}. Avg. Increase is Graph-RL's (arXiv 2506.00845, table 2)."""
    members: dict[str, list[str]] = {}
    for name, play in ours.items():
        if play.group and play.number is not None:
            members.setdefault(f"{play.group}/{name.rpartition('/')[2]}", []).append(name)
    return {name: _average(plays, ours, theirs or {}) for name, plays in members.items()}


def _average(plays: list[str], ours: Mapping[str, EvalResult], theirs: Mapping[str, EvalResult]) -> Average:
    found = {name: number for name in plays if (number := ours[name].number) is not None}
    pairs = [(found[name], theirs[name].numbers.get(ours[name].key)) for name in found if name in theirs]
    ratios = [mine.value / other.value - 1 for mine, other in pairs if other is not None and other.value > 0]
    whole = bool(ratios) and len(ratios) == len(found)
    return Average(
        sets=len(found),
        mean=math.fsum(number.value for number in found.values()) / len(found),
        increase=math.fsum(ratios) / len(ratios) if whole else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Counts of tasks, by whether all of their single steps were right and whether they were."""

    of: str  # the play of the whole tasks
    both: int
    steps_alone: int  # all steps right, the task wrong: they were not put together
    task_alone: int  # the task right, a step wrong: not by these steps
    neither: int
    single: float  # share of all single steps that were right
    whole: float  # the number of the whole tasks
    p: float | None  # z-test that the two differ (its table 6); None where they are no shares

    def told(self) -> str:
        p = "" if self.p is None else f", z-test p = {self.p:.3g}"
        return (
            f"single steps of {self.of}: steps and task right {self.both}, steps alone {self.steps_alone}, "
            f"task alone {self.task_alone}, neither {self.neither}; single {self.single:.3f}, whole {self.whole:.3f}{p}"
        )


def steps_of(name: str, single: EvalResult, whole: EvalResult, parents: Mapping[str, str]) -> Steps | None:
    """parents: by task_id of a single step that of its task. None where no task was played in both ways."""
    by_parent: dict[str, list[float]] = defaultdict(list)
    for task, value in single.tasks.items():
        by_parent[parents[task]].append(value)
    found = [
        (min(values) >= RIGHT, whole.tasks[parent] >= RIGHT)
        for parent, values in by_parent.items()
        if parent in whole.tasks
    ]
    if not found or single.number is None or whole.number is None:
        return None
    return Steps(
        of=name,
        both=found.count((True, True)),
        steps_alone=found.count((True, False)),
        task_alone=found.count((False, True)),
        neither=found.count((False, False)),
        single=single.number.value,
        whole=whole.number.value,
        p=differ(single.number, whole.number)[1] if single.is_share and whole.is_share else None,
    )
