"""Several evaluations side by side: `rlsys compare`, the tables and the correlations of Graph-RL (arXiv 2506.00845)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

from launch.driver.evaluation.against import (
    Paired,
    describe_config_differences,
    describe_task_differences,
    pair_settings,
)
from launch.driver.evaluation.report import averages
from launch.run_dir.played import EvalResult, Number, Test, differ, is_share
from launch.run_dir.significance import Correlation, mean_and_spread, pearson

Plays = Mapping[str, EvalResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSetting:
    """One row: the evaluations of one setting, one of each seed."""

    name: str
    seeds: Sequence[Plays]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a setting has of one play."""

    value: float  # mean over seeds
    spread: float | None  # standard deviation over seeds; None of one
    p: float | None = None  # of the test against the first setting; None for it, and where none is possible
    better: bool = False
    paired: Paired | None = None  # over tasks, whose values are means over seeds
    why_not: str | None = None  # why it is not tested
    other_way: str = ""
    other_tasks: str = ""  # of an unpaired test

    def describe(self, alpha: float) -> str:
        mark = "" if self.p is None or self.p >= alpha else "+" if self.better else "-"
        spread = "" if self.spread is None else f" ±{self.spread:.3f}"
        return f"{self.value:.3f}{spread}{mark}"


def compared_metrics(settings: Sequence[ComparedSetting]) -> dict[str, str]:
    """Every play of any of them, in the order in which they first appear, with the one metric that is compared: that
    which stands for the first of them with a number."""
    played = [item for setting in settings for plays in setting.seeds for item in plays.items()]
    first = {name: play.key for name, play in reversed(played) if play.number is not None}
    return {name: first.get(name, play.key) for name, play in played}


def cells(settings: Sequence[ComparedSetting], test: Test = "paired") -> dict[str, dict[str, Cell]]:
    """By setting and play."""
    by_setting: dict[str, dict[str, Cell]] = {}
    metrics = compared_metrics(settings)
    for setting in settings:
        row = {play: _cell(setting, settings[0], play, key, test) for play, key in metrics.items()}
        by_setting[setting.name] = {play: cell for play, cell in row.items() if cell is not None}
    return by_setting


def _cell(setting: ComparedSetting, first: ComparedSetting, play: str, key: str, test: Test) -> Cell | None:
    ours = _numbers_of_seeds(setting, play, key)
    if not ours:
        return None
    value, spread = mean_and_spread([number.value for number in ours])
    cell = Cell(value=value, spread=None if len(ours) == 1 else spread)
    theirs = _numbers_of_seeds(first, play, key)
    if setting is first or not theirs:
        return cell
    sides = [[plays[play] for plays in side.seeds if play in plays] for side in (setting, first)]
    cell = replace(cell, other_way=describe_config_differences(*sides))
    if test == "paper":
        mine, other = _pool_counts(ours), _pool_counts(theirs)
        p = differ(mine, other)[1] if is_share(key) else None
        better = mine.value > other.value  # not the mean over seeds, of which one may have fewer episodes
        return replace(cell, p=p, better=better, other_tasks=describe_task_differences(*sides))
    outcome = pair_settings(*sides)
    if isinstance(outcome, str):
        return replace(cell, why_not=outcome)
    return replace(cell, p=outcome.p, better=outcome.difference > 0, paired=outcome)


def _numbers_of_seeds(setting: ComparedSetting, play: str, key: str) -> list[Number]:
    return [plays[play].numbers[key] for plays in setting.seeds if play in plays and key in plays[play].numbers]


def _pool_counts(numbers: Sequence[Number]) -> Number:
    count = math.fsum(number.count for number in numbers)
    return Number(value=math.fsum(number.value * number.count for number in numbers) / count, count=count)


def increases(settings: Sequence[ComparedSetting]) -> dict[str, dict[str, float]]:
    """By setting and group the average increase over the first setting, mean over seeds against its first seed."""
    first = settings[0].seeds[0]
    by_setting: dict[str, dict[str, float]] = {}
    for setting in settings[1:]:
        by_group: dict[str, list[float]] = {}
        for plays in setting.seeds:
            for group, average in averages(plays, first).items():
                if average.increase is not None:
                    by_group.setdefault(group, []).append(average.increase)
        by_setting[setting.name] = {group: math.fsum(values) / len(values) for group, values in by_group.items()}
    return by_setting


def correlations(settings: Sequence[ComparedSetting]) -> dict[str, Correlation]:
    """Over all evaluations, each a point: of each play its mean reward with its accuracy, where they are not the same;
    and the means of each two groups with one another. Those of three points and more."""
    all_plays = [plays for setting in settings for plays in setting.seeds]
    points: dict[str, list[tuple[float, float]]] = {}
    for plays in all_plays:
        for name, play in plays.items():
            reward, accuracy = play.numbers.get("mean_reward"), play.numbers.get("accuracy")
            if reward is not None and accuracy is not None:
                points.setdefault(f"reward and accuracy of {name}", []).append((reward.value, accuracy.value))
        means = {group: average.mean for group, average in averages(plays).items()}
        for first, second in combinations(sorted(means), 2):
            points.setdefault(f"{first} and {second}", []).append((means[first], means[second]))
    varied = {name: pairs for name, pairs in points.items() if len(pairs) > 2 and any(x != y for x, y in pairs)}
    return {name: pearson([x for x, _ in pairs], [y for _, y in pairs]) for name, pairs in varied.items()}


NAMES: Mapping[Test, str] = {"paired": "the test over the tasks of both", "paper": "the z-test of two proportions"}


def comparison_lines(settings: Sequence[ComparedSetting], alpha: float, test: Test) -> list[str]:
    """A table with a row for each setting; then what they say together."""
    names, by_setting, more = compared_metrics(settings), cells(settings, test), increases(settings)
    groups = list(dict.fromkeys(group for row in more.values() for group in row))
    head = ["", *names, *(f"{group} increase" for group in groups)]
    rows = [head]
    for setting in settings:
        row = by_setting[setting.name]
        texts = [row[name].describe(alpha) if name in row else "-" for name in names]
        gains = more.get(setting.name, {})
        rows.append([setting.name, *texts, *(f"{gains[group]:+.1%}" if group in gains else "-" for group in groups)])
    wide = [max(len(row[at]) for row in rows) for at in range(len(head))]
    table = ["  ".join(f"{word:<{wide[at]}}" for at, word in enumerate(row)).rstrip() for row in rows]
    note = [f"+ and -: differs from {settings[0].name} by {NAMES[test]}, p < {alpha:g}{_describe_scope(by_setting)}"]
    tested = [line for setting in settings[1:] for line in _describe_tests(setting.name, by_setting[setting.name])]
    return [
        *table,
        *note,
        *tested,
        *(_describe_correlation(name, correlation) for name, correlation in correlations(settings).items()),
    ]


def _describe_scope(by_setting: Mapping[str, Mapping[str, Cell]]) -> str:
    """What the signs + and - hold for: other tasks and, where both sides have several seeds, other training seeds."""
    scopes = {cell.paired.holds_for for row in by_setting.values() for cell in row.values() if cell.paired}
    if not scopes:
        return ""
    if scopes == {"other tasks"}:
        return "; it holds for other tasks, not for other training seeds (two at least on both sides test that too)"
    several = "the greater p of the tests over tasks and over seeds decides"
    return f"; {several}" + ("; settings with a single seed: not for other seeds" if len(scopes) > 1 else "")


def _describe_tests(name: str, row: Mapping[str, Cell]) -> list[str]:
    """What the table has no room for."""
    notes = [f"{name}, {play}: {cell.paired.describe()}" for play, cell in row.items() if cell.paired]
    notes += [f"{name}, {play}: not tested: {cell.why_not}" for play, cell in row.items() if cell.why_not]
    for key in ("other_way", "other_tasks"):
        warnings = dict.fromkeys(text for cell in row.values() if (text := getattr(cell, key)))
        for text in warnings:
            of = ", ".join(play for play, cell in row.items() if getattr(cell, key) == text)
            notes.append(f"warning: {name} against the first, {of}: {text}")
    return notes


def _describe_correlation(name: str, found: Correlation) -> str:
    return f"{name}: r = {found.r:.3f} ({found.low:.3f} to {found.high:.3f}) over {found.count} evaluations"


def as_json(settings: Sequence[ComparedSetting], test: Test) -> dict[str, Any]:
    by_setting = cells(settings, test)
    return {
        "test": test,
        "settings": {name: {play: asdict(cell) for play, cell in row.items()} for name, row in by_setting.items()},
        "increases": increases(settings),
        "correlations": {
            name: {key: value if math.isfinite(value) else None for key, value in asdict(correlation).items()}
            for name, correlation in correlations(settings).items()
        },
    }
