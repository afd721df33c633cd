"""Results of evaluations: in a line of a run, as the table of `rlsys eval`, and as the JSON of its `--output`.

What several sets say together: the mean of a group with its increase over an earlier evaluation, and whole tasks next
to their single steps: does a model that can do the steps do the task (arXiv 2506.00845, section 5.2)? A set with
`steps_of` asks for the steps of another set's tasks one by one; the field `parent` of each names its task.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.driver.evaluation.results import Metric, Result
from launch.driver.evaluation.sets import Play
from launch.run_dir.played import EvalResult, differ
from rlsys.files import replace_file
from rlsys.harvest import first_of

MORE = (
    "metrics",
    "planned",
    "tokens",
    "episodes_by_turns",
    "by_turns",
    "by",
    "by_value",
    "episodes_by_value",
    "answered_by",
    "versions",
    "tasks",
    "contents",
)
USE = ("tokens", "response_tokens", "turns", "truncated", "reply_tokens")  # of the episodes, not of their answers
RIGHT = 1 - 1e-9  # of a task: every step right, every constraint satisfied


def report(about: Mapping[str, Any], plays: Mapping[str, Play], results: Mapping[str, Result]) -> dict[str, Any]:
    """By key, for JSON. `accuracy`, `mean_reward`, `episodes`, `failures` and `ends` are by play."""
    measures = {each.measure for each in results.values()}
    found: dict[str, Any] = dict(about) | {"measure": measures.pop() if len(measures) == 1 else None}
    for key in ("accuracy", "mean_reward"):
        numbers = {name: each.metrics[key].value if key in each.metrics else None for name, each in results.items()}
        if any(each.key == key or numbers[name] is not None for name, each in results.items()):
            found[key] = numbers
    for key in ("episodes", "failures", "ends"):
        found[key] = {name: getattr(each, key) for name, each in results.items()}
    return found | {"plays": {name: _play(plays[name], each) for name, each in results.items()}}


def of_several(
    plays: Mapping[str, Play], ours: Mapping[str, EvalResult], earlier: Mapping[str, EvalResult] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """What plays say together, in lines and for JSON: single steps next to whole tasks, and the means of groups."""
    steps: dict[str, Steps] = {}
    for name, play in plays.items():
        of = f"{play.of.steps_of}/{play.name}"
        found = steps_of(of, ours[name], ours[of], play.of.parents) if of in ours else None
        steps |= {name: found} if found is not None else {}
    groups = averages(ours, earlier)
    lines = [f"{name}: {each.describe()}" for name, each in steps.items()]
    lines += [f"{name}  {each.describe()}" for name, each in groups.items()]
    values: dict[str, Mapping[str, Any]] = {"steps": steps, "groups": groups}
    return lines, {key: {name: asdict(each) for name, each in found.items()} for key, found in values.items() if found}


def _play(play: Play, result: Result) -> dict[str, Any]:
    sampling = {"samples": play.samples, "seeds": play.seeds, "temperature": play.temperature, "group": play.of.group}
    found = {"prompts": play.digest(), "way": play.way(), "measure": result.measure, "partial": result.partial}
    values = asdict(result)
    return found | sampling | {key: values[key] for key in MORE} | {"paper": papers_of(play)}


def papers_of(play: Play) -> dict[str, float]:
    """The paper's figures that speak of this play: all that name none, and those that name it."""
    found = {key: value for key, value in play.of.paper.items() if "/" not in key}
    mark = f"{play.name}/"
    return found | {key.removeprefix(mark): value for key, value in play.of.paper.items() if key.startswith(mark)}


def write(path: Path, found: Mapping[str, Any]) -> None:
    replace_file(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def describe_plan(plays: Mapping[str, Play]) -> str:
    """ "200 held-out tasks, greedy and 2 sampled", or "hotpotqa 100 tasks, greedy; bamboogle ..."."""
    sets: dict[str, list[str]] = {}
    for play in plays.values():
        name = play.of.name or "held-out"
        begin = f"{len(play.of.tasks)} held-out tasks" if not play.of.name else f"{name} {len(play.of.tasks)} tasks"
        seeds = f" x {play.seeds} seeds" if play.seeds > 1 else ""
        sets.setdefault(begin, []).append("greedy" if play.name == "greedy" else f"{play.samples} sampled{seeds}")
    return "; ".join(f"{begin}, {' and '.join(ways)}" for begin, ways in sets.items())


def describe_results(results: Mapping[str, Result]) -> str:
    """In one line: "greedy 0.375, sampled 0.410; greedy: 16 of 24 graded, 8 failed; the first: ..." """
    numbers = (f"{name} {'none' if each.value is None else f'{each.value:.3f}'}" for name, each in results.items())
    parts = [", ".join(numbers)]
    for name, each in results.items():
        if each.by_value:
            by = ", ".join(
                f"{value}: {m.value:.3f} of {each.episodes_by_value[value]}" for value, m in each.by_value.items()
            )
            parts.append(f"{name} by {each.by}  {by}")
        if each.partial:
            parts.append(f"{name}: partial, {_partial(each)}")
        if each.failed:
            graded = each.episodes - each.failures
            too_many = each.failures > each.limit * each.episodes
            over = f", above loop.max_failed_share={each.limit:g}" if too_many else ""
            parts.append(f"{name}: {graded} of {each.episodes} graded, {each.failures} failed{over}")
    failed = [failure for each in results.values() for failure in each.failed]
    return "; ".join([*parts, first_of(failed)] if failed else parts)


def _partial(each: Result) -> str:
    text = f"{each.episodes} of {each.planned} episodes"
    metric = each.metrics.get(each.key)
    if metric is None:
        return text
    text += f", {metric.low:.3f} to {metric.high:.3f}"
    low, high = each.bounds
    return text + (f", with the rest {low:.3f} to {high:.3f}" if each.measure == "accuracy" else "")


def table(results: Mapping[str, Result]) -> list[str]:
    """One line for each play."""
    measures = {each.measure for each in results.values()}
    measure = measures.pop() if len(measures) == 1 else "result"
    names = [*results, *(f"  {each.by} {value}" for each in results.values() for value in each.by_value)]
    wide = max(10, *(len(name) + 2 for name in names))
    lines = [f"{'':<{wide}}{measure:>12}{'95 % interval':>18}{'episodes':>10}{'failures':>10}   how they ended"]
    for name, each in results.items():
        ends = ", ".join(f"{end} {count}" for end, count in sorted(each.ends.items()))
        metric = each.metrics.get(each.key)
        shown, within = ("-", "") if metric is None else (f"{metric.value:.3f}", _interval(metric))
        lines.append(f"{name:<{wide}}{shown:>12}{within:>18}{each.episodes:>10}{each.failures:>10}   {ends}")
        for value, metric in each.by_value.items():
            label, within, count = f"  {each.by} {value}", _interval(metric), each.episodes_by_value[value]
            lines.append(f"{label:<{wide}}{metric.value:>12.3f}{within:>18}{count:>10}")
    return lines


def metric_lines(results: Mapping[str, Result], papers: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Every other number of each play, next to the paper's; then accuracy by the model's messages."""
    lines: list[str] = []
    for name, each in results.items():
        paper = papers.get(name, {})
        for key, metric in each.metrics.items():
            theirs = f"   paper {paper[key]:.3f}" if key in paper else ""
            shown = key == each.key and metric.spread is None  # in the table
            if (shown or key.startswith("part/")) and not theirs:
                continue  # the JSON has all of them
            spread = f"   +- {metric.spread:.3f} over seeds" if metric.spread is not None else ""
            number = f"{metric.value:.1f}" if key in USE and key != "truncated" else f"{metric.value:.3f}"
            lines.append(f"{name}  {key:<20}{number:>9}{_interval(metric):>18}{spread}{theirs}")
        absent = [key for key in paper if key not in each.metrics]
        lines += [f"{name}  {key:<20}{'-':>9}{'':>18}   paper {paper[key]:.3f}" for key in absent]
        if len(each.by_turns) > 1:
            by = ", ".join(f"{n}: {m.value:.3f} of {each.episodes_by_turns[n]}" for n, m in each.by_turns.items())
            lines.append(f"{name}  {each.measure} by messages of the model  {by}")
    return lines


def failure_lines(results: Mapping[str, Result]) -> list[str]:
    """How many episodes of each play failed, and why the first of them did."""
    failed = {name: each for name, each in results.items() if each.failed}
    return [
        f"{name}: {each.failures} of {each.episodes} failed; {first_of(each.failed)}" for name, each in failed.items()
    ]


def _interval(metric: Metric) -> str:
    return f"{metric.low:.3f} to {metric.high:.3f}" if metric.low < metric.high else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """Of the sets of one group, each counted once."""

    sets: int
    mean: float
    increase: float | None = None  # mean of ours / theirs - 1 over the sets of both; None where theirs has a 0, or none

    def describe(self) -> str:
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

    def describe(self) -> str:
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
