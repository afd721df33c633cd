"""An evaluation against another one, such as an earlier one: `rlsys eval --against FILE`.

Task by task: what both find easy or hard cancels out, and samples of one task count once. Or by the paper's test of two
proportions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launch.run_dir.played import EvalResult, Number, Test, differ, read_played
from launch.run_dir.significance import SEEDS_TEST, bootstrap_interval, paired_test, seeds_test
from rlsys.errors import MOST_SHOWN
from rlsys.untrusted import visible

FIRST_TASK = "ask something else, the first: "  # and the id of a task, which a report that is redacted leaves out


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Over the tasks of both: the mean difference with its 95 % interval, and the test that it is 0.

    Where both sides have several training seeds, p is the greater one of the tests over tasks and over seeds, and the
    interval holds those of both. The test decides: an interval by the bootstrap may leave 0 out where p is above .05.
    """

    tasks: int
    difference: float
    low: float
    high: float
    test: str  # of `paired_test`, or `SEEDS_TEST` where that is the more cautious one
    p: float
    p_seeds: float | None = None  # None: one side has a single training seed

    def describe(self) -> str:
        within = f" ({self.low:+.3f} to {self.high:+.3f})" if self.low < self.high else ""
        seeds = f" (over seeds {format_p(self.p_seeds)})" if self.p_seeds is not None else ""
        test = f"{self.test} {format_p(self.p)}{seeds}"
        return f"on the {self.tasks} tasks of both {self.difference:+.3f}{within}, {test}"

    @property
    def holds_for(self) -> str:
        return "other tasks" if self.p_seeds is None else "other tasks and other training seeds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """`--test paper`, the z-test of two proportions: over all graded episodes, or all of which a share is."""

    z: float
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    ours: float
    theirs: float
    difference: float
    unpaired: Unpaired | None = None  # None: not asked for, or no accuracies
    paired: Paired | None = None
    why_not: str | None = None  # why it is not paired
    other_way: str = ""
    other_tasks: str = ""  # of an unpaired test

    def json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}

    def describe(self) -> str:
        text = f"{self.ours:.3f}, there {self.theirs:.3f}"
        if self.unpaired:
            text += f"; two-proportion z-test {format_p(self.unpaired.p)}"
        if self.paired:
            text += f"; {self.paired.describe()}"
        if self.why_not:
            text += f"; not tested: {self.why_not}"
        return text + "".join(f"; warning: {warning}" for warning in (self.other_way, self.other_tasks) if warning)


def read_earlier(path: str) -> dict[str, EvalResult]:
    """What `--against` names, by play. Raises BadInput."""
    return read_played(path, f"--against {path}")


def compare_with_earlier(
    ours: Mapping[str, EvalResult], earlier: Mapping[str, EvalResult], test: Test = "paired"
) -> dict[str, Difference]:
    """By play that both have a number of."""
    return {
        name: _difference(play, play.number, earlier[name], theirs, test)
        for name, play in ours.items()
        if name in earlier and play.number is not None and (theirs := earlier[name].numbers.get(play.key)) is not None
    }


def _difference(ours: EvalResult, number: Number, earlier: EvalResult, theirs: Number, test: Test) -> Difference:
    unpaired, outcome = None, None
    if test == "paired":
        outcome = pair_settings([ours], [earlier])
    elif ours.is_share:
        z, p = differ(number, theirs)
        unpaired = Unpaired(z=z, p=p)
    return Difference(
        ours=number.value,
        theirs=theirs.value,
        difference=number.value - theirs.value,
        unpaired=unpaired,
        paired=outcome if isinstance(outcome, Paired) else None,
        why_not=outcome if isinstance(outcome, str) else None,
        other_way=describe_config_differences([ours], [earlier]),
        other_tasks=describe_task_differences([ours], [earlier]) if unpaired else "",
    )


def against_lines(differences: Mapping[str, Difference], path: str) -> list[str]:
    if not differences:
        return [f"against {path}: no play with a number in both"]
    return [f"against {path}: {name} {difference.describe()}" for name, difference in differences.items()]


def format_p(p: float) -> str:
    """What is smaller is the tail of a formula and no probability."""
    return "p < 1e-16" if p < 1e-16 else f"p = {p:.3g}"


def pair_settings(ours: Sequence[EvalResult], theirs: Sequence[EvalResult]) -> Paired | str:
    """Of the training seeds of two settings, whose values of a task are averaged first; a text says why not.

    Tasks are the same where question and answers are. Two tasks of one id that differ are two draws or two versions of
    a file: of these nothing is paired, whatever else they share.
    """
    plays = [*ours, *theirs]
    if any(play.is_pooled for play in plays):
        return "a share over all that the set holds has no value of each task"
    if len({play.measure for play in plays}) > 1:
        return "one is a mean reward and the other an accuracy"
    if reason := _find_conflict(plays):
        return reason
    hashed = all(play.contents for play in plays)
    values = [_values_by_task_content(play) if hashed else play.tasks for play in plays]
    both = [task for task in values[0] if all(task in by_task for by_task in values)]
    if not both:
        return "no task is in both"
    mine, other_side = values[: len(ours)], values[len(ours) :]
    differences = [_mean_over_seeds(mine, task) - _mean_over_seeds(other_side, task) for task in both]
    bounds = (-1.0, 1.0) if plays[0].is_share else None
    if not all(map(math.isfinite, differences)):
        return "the value of a task is no finite number"
    test, p = paired_test(differences)
    low, high = bootstrap_interval(differences, bounds=bounds)
    mean = math.fsum(differences) / len(differences)
    p_seeds = None
    if len(mine) > 1 and len(other_side) > 1:
        means = [[math.fsum(seed[task] for task in both) / len(both) for seed in side] for side in (mine, other_side)]
        p_seeds, below, above = seeds_test(*means)
        low, high, test = min(low, below), max(high, above), test if p >= p_seeds else SEEDS_TEST
        p = max(p, p_seeds)
    return Paired(tasks=len(both), difference=mean, low=low, high=high, test=test, p=p, p_seeds=p_seeds)


def describe_config_differences(ours: Sequence[EvalResult], theirs: Sequence[EvalResult]) -> str:
    """Whether they were evaluated in another way (sampling, limits, environment, reward), by the keys that differ.

    Empty: they were not. Which tasks were drawn, how many, and with which seeds are no part of it.
    """
    plays = [*ours, *theirs]
    if len({play.prompts for play in plays}) == 1:
        return ""
    if not all(play.way for play in plays):
        return "whether they were evaluated in the same way is not known: an earlier rlsys has not written it"
    first, keys = plays[0].way, dict.fromkeys(key for play in plays for key in play.way)
    differing = [visible(key) for key in keys if any(play.way.get(key) != first.get(key) for play in plays)]
    more = f" and {len(differing) - MOST_SHOWN} more" if len(differing) > MOST_SHOWN else ""
    return f"evaluated in another way: {', '.join(differing[:MOST_SHOWN])}{more}" if differing else ""


def describe_task_differences(ours: Sequence[EvalResult], theirs: Sequence[EvalResult]) -> str:
    """What an unpaired test takes for granted, where it is over other tasks on each side. Empty: over the same."""
    hashed = all(play.contents for play in (*ours, *theirs))
    our_tasks, their_tasks = (
        {key for play in side for key in (play.contents.values() if hashed else play.tasks)} for side in (ours, theirs)
    )
    if our_tasks == their_tasks:
        return ""
    counts = f"of {len(our_tasks)} and {len(their_tasks)} tasks {len(our_tasks & their_tasks)} are in both"
    return f"{counts}: the test takes them as drawn from one source"


def _find_conflict(plays: Sequence[EvalResult]) -> str | None:
    """Why tasks of one id are not the same ones."""
    first: dict[str, str] = {}
    differ = {task for play in plays for task, text in play.contents.items() if first.setdefault(task, text) != text}
    if not differ:
        return None
    return f"{len(differ)} tasks of the same id {FIRST_TASK}{min(differ)}"


def _values_by_task_content(play: EvalResult) -> dict[str, float]:
    """The mean of those that ask the same."""
    by_content: dict[str, list[float]] = defaultdict(list)
    for task, value in play.tasks.items():
        by_content[play.contents[task]].append(value)
    return {content: math.fsum(values) / len(values) for content, values in by_content.items()}


def _mean_over_seeds(seeds: Sequence[Mapping[str, float]], task: str) -> float:
    return math.fsum(seed[task] for seed in seeds) / len(seeds)
