"""Results of evaluations: in a line of a run, as the table of `rlsys eval`, and as the JSON of its `--output`.

What several sets say together: the mean of a group with its increase over an earlier evaluation, and whole tasks next
to their single steps: does a model that can do the steps do the task (arXiv 2506.00845, section 5.2)? A set with
`count_solved_steps` asks for the steps of another set's tasks one by one; the field `parent` of each names its task.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.driver.evaluation.results import Metric, Result
from launch.driver.evaluation.sets import Play
from launch.run_dir.played import EvalResult, differ
from rlsys.files import replace_file
from rlsys.harvest import why_failed

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
USE = ("tokens", "response_tokens", "turns", "reply_tokens")  # no shares
RIGHT = 1 - 1e-9  # of a task: every step right, every constraint satisfied


def evaluation_report(
    header: Mapping[str, Any], plays: Mapping[str, Play], results: Mapping[str, Result]
) -> dict[str, Any]:
    """By key, for JSON. `accuracy`, `mean_reward`, `episodes`, `failures` and `ends` are by play."""
    measures = {result.measure for result in results.values()}
    content: dict[str, Any] = dict(header) | {"measure": measures.pop() if len(measures) == 1 else None}
    for key in ("accuracy", "mean_reward"):
        means = {name: result.metrics[key].value if key in result.metrics else None for name, result in results.items()}
        if any(result.key == key or means[name] is not None for name, result in results.items()):
            content[key] = means
    for key in ("episodes", "failures", "ends"):
        content[key] = {name: getattr(result, key) for name, result in results.items()}
    return content | {"plays": {name: _play_as_json(plays[name], result) for name, result in results.items()}}


def combine_plays(
    plays: Mapping[str, Play], ours: Mapping[str, EvalResult], earlier: Mapping[str, EvalResult] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """What plays say together, in lines and for JSON: single steps next to whole tasks, and the means of groups."""
    steps: dict[str, Steps] = {}
    for name, play in plays.items():
        of = f"{play.of.steps_of}/{play.name}"
        step_counts = count_solved_steps(of, ours[name], ours[of], play.of.parents) if of in ours else None
        steps |= {name: step_counts} if step_counts is not None else {}
    groups = averages(ours, earlier)
    lines = [f"{name}: {counts.describe()}" for name, counts in steps.items()]
    lines += [f"{name}  {average.describe()}" for name, average in groups.items()]
    values: dict[str, Mapping[str, Any]] = {"steps": steps, "groups": groups}
    return lines, {key: {name: asdict(row) for name, row in rows.items()} for key, rows in values.items() if rows}


def _play_as_json(play: Play, result: Result) -> dict[str, Any]:
    sampling = {"samples": play.samples, "seeds": play.seeds, "temperature": play.temperature, "group": play.of.group}
    summary = {"prompts": play.digest(), "way": play.way(), "measure": result.measure, "partial": result.partial}
    values = asdict(result)
    return summary | sampling | {key: values[key] for key in MORE} | {"paper": paper_figures_of(play)}


def paper_figures_of(play: Play) -> dict[str, float]:
    """The paper's figures that speak of this play: all that name none, and those that name it."""
    figures = {key: value for key, value in play.of.paper.items() if "/" not in key}
    mark = f"{play.name}/"
    return figures | {key.removeprefix(mark): value for key, value in play.of.paper.items() if key.startswith(mark)}


def write(path: Path, content: Mapping[str, Any]) -> None:
    replace_file(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


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
    means = (f"{name} {'none' if play.value is None else f'{play.value:.3f}'}" for name, play in results.items())
    parts = [", ".join(means)]
    for name, result in results.items():
        if result.by_value:
            by = ", ".join(
                f"{value}: {m.value:.3f} of {result.episodes_by_value[value]}" for value, m in result.by_value.items()
            )
            parts.append(f"{name} by {result.by}  {by}")
        if result.partial:
            parts.append(f"{name}: partial, {_describe_missing(result)}")
        if result.failed:
            graded = result.episodes - result.failures
            too_many = result.failures > result.limit * result.episodes
            over = f", above loop.max_failed_share={result.limit:g}" if too_many else ""
            parts.append(f"{name}: {graded} of {result.episodes} graded, {result.failures} failed{over}")
    failed = [failure for play in results.values() for failure in play.failed]
    return "; ".join([*parts, why_failed(failed)] if failed else parts)


def _describe_missing(result: Result) -> str:
    text = f"{result.episodes} of {result.planned} episodes"
    metric = result.metrics.get(result.key)
    if metric is None:
        return text
    text += f", {metric.low:.3f} to {metric.high:.3f}"
    low, high = result.bounds
    return text + (f", with the rest {low:.3f} to {high:.3f}" if result.measure == "accuracy" else "")


def results_table(results: Mapping[str, Result]) -> list[str]:
    """One line for each play."""
    measures = {play.measure for play in results.values()}
    measure = measures.pop() if len(measures) == 1 else "result"
    names = [*results, *(f"  {play.by} {value}" for play in results.values() for value in play.by_value)]
    wide = max(10, *(len(name) + 2 for name in names))
    lines = [f"{'':<{wide}}{measure:>12}{'95 % interval':>18}{'episodes':>10}{'failures':>10}   how they ended"]
    for name, result in results.items():
        ends = ", ".join(f"{end} {count}" for end, count in sorted(result.ends.items()))
        metric = result.metrics.get(result.key)
        number, within = ("-", "") if metric is None else (f"{metric.value:.3f}", _format_interval(metric))
        lines.append(f"{name:<{wide}}{number:>12}{within:>18}{result.episodes:>10}{result.failures:>10}   {ends}")
        for value, metric in result.by_value.items():
            label, within, count = f"  {result.by} {value}", _format_interval(metric), result.episodes_by_value[value]
            lines.append(f"{label:<{wide}}{metric.value:>12.3f}{within:>18}{count:>10}")
    return lines


def metric_lines(results: Mapping[str, Result], papers: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Every other number of each play, next to the paper's; then accuracy by the model's messages."""
    lines: list[str] = []
    for name, result in results.items():
        paper = papers.get(name, {})
        for key, metric in result.metrics.items():
            theirs = f"   paper {paper[key]:.3f}" if key in paper else ""
            in_table = key == result.key and metric.spread is None
            if (in_table or key.startswith("part/")) and not theirs:
                continue  # the JSON has all of them
            spread = f"   +- {metric.spread:.3f} over seeds" if metric.spread is not None else ""
            number = f"{metric.value:.{1 if key in USE else 3}f}"
            lines.append(f"{name}  {key:<20}{number:>9}{_format_interval(metric):>18}{spread}{theirs}")
        absent = [key for key in paper if key not in result.metrics]
        lines += [f"{name}  {key:<20}{'-':>9}{'':>18}   paper {paper[key]:.3f}" for key in absent]
        if len(result.by_turns) > 1:
            by = ", ".join(f"{n}: {m.value:.3f} of {result.episodes_by_turns[n]}" for n, m in result.by_turns.items())
            lines.append(f"{name}  {result.measure} by messages of the model  {by}")
    return lines


def failure_lines(results: Mapping[str, Result]) -> list[str]:
    """How many episodes of each play failed, and why the first of them did."""
    failed = {name: play for name, play in results.items() if play.failed}
    return [
        f"{name}: {play.failures} of {play.episodes} failed; {why_failed(play.failed)}" for name, play in failed.items()
    ]


def _format_interval(metric: Metric) -> str:
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
    numbers = {name: number for name in plays if (number := ours[name].number) is not None}
    pairs = [(numbers[name], theirs[name].numbers.get(ours[name].key)) for name in numbers if name in theirs]
    ratios = [mine.value / other.value - 1 for mine, other in pairs if other is not None and other.value > 0]
    complete = bool(ratios) and len(ratios) == len(numbers)
    return Average(
        sets=len(numbers),
        mean=math.fsum(number.value for number in numbers.values()) / len(numbers),
        increase=math.fsum(ratios) / len(ratios) if complete else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Counts of tasks, by whether all of their single steps were right and whether they were."""

    of: str  # the play of the whole tasks
    both: int
    steps_alone: int  # all steps right, the task wrong: they were not put together
    task_alone: int  # the task right, a step wrong: not by these steps
    neither: int
    left_out: int  # a step was not graded
    single: float  # share of all single steps that were right
    whole: float  # the number of the whole tasks
    p: float | None  # z-test that the two differ (its table 6); None where they are no shares

    def describe(self) -> str:
        p = "" if self.p is None else f", z-test p = {self.p:.3g}"
        left_out = f", left out {self.left_out} with a step that was not graded" if self.left_out else ""
        return (
            f"single steps of {self.of}: steps and task right {self.both}, steps alone {self.steps_alone}, "
            f"task alone {self.task_alone}, neither {self.neither}{left_out}; "
            f"single {self.single:.3f}, whole {self.whole:.3f}{p}"
        )


def count_solved_steps(name: str, single: EvalResult, whole: EvalResult, parents: Mapping[str, str]) -> Steps | None:
    """parents: by task_id of a single step that of its task. None where no task was graded in both ways."""
    by_parent: dict[str, list[float]] = defaultdict(list)
    for task, value in single.tasks.items():
        by_parent[parents[task]].append(value)
    steps_asked = {parent: count for parent, count in Counter(parents.values()).items() if parent in whole.tasks}
    outcomes = [
        (min(by_parent[parent]) >= RIGHT, whole.tasks[parent] >= RIGHT)
        for parent, count in steps_asked.items()
        if len(by_parent[parent]) == count
    ]
    if not outcomes or single.number is None or whole.number is None:
        return None
    return Steps(
        of=name,
        both=outcomes.count((True, True)),
        steps_alone=outcomes.count((True, False)),
        task_alone=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
        left_out=len(steps_asked) - len(outcomes),
        single=single.number.value,
        whole=whole.number.value,
        p=differ(single.number, whole.number)[1] if single.is_share and whole.is_share else None,
    )
