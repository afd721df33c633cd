"""The last evaluations of runs: beside a paper's figures, against one another, and what goes along with what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.analysis.episodes import plays_of
from launch.analysis.papers import papers_of
from launch.analysis.runs import Row, Setting
from rlsys.stats import Correlation, mean_and_spread, pearson, proportions_z_test

MEASURES = ("constraints_pooled", "exact_match", "accuracy", "mean_reward")  # the first that a play has is compared
SHARES = ("exact_match", "accuracy")  # of episodes: how many there are is known, so they can be tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One number of one setting, and what it is held against."""

    key: str  # play/metric
    label: str
    value: float  # mean over seeds
    spread: float | None  # standard deviation over seeds (ddof 1); None of a single one
    seeds: int
    against: float
    p: float | None = None  # two-sided pooled z-test, of shares of episodes

    @property
    def difference(self) -> float:
        return self.value - self.against

    @property
    def relative(self) -> float | None:
        """0.1 is ten percent more."""
        return self.value / self.against - 1 if self.against > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    title: str
    x_label: str
    y_label: str
    points: tuple[tuple[str, float, float], ...]  # (setting, x, y)
    correlation: Correlation


def last_of(settings: Sequence[Setting]) -> dict[str, list[Row]]:
    """The last evaluation of each run that has one."""
    found = {each.label: [run.evaluations[-1] for run in each.runs if run.evaluations] for each in settings}
    return {label: rows for label, rows in found.items() if rows}


def beside_papers(settings: Sequence[Setting]) -> list[Entry]:
    """What the recipes know of their papers' results: `paper` of eval and of its sets."""
    papers = {key: value for setting in settings for run in setting.runs for key, value in papers_of(run).items()}
    last = last_of(settings)
    made = (_entry(key, label, rows, paper) for key, paper in papers.items() for label, rows in last.items())
    return [each for each in made if each is not None]


def against_first(settings: Sequence[Setting]) -> tuple[str, list[Entry]]:
    """Each setting against the first one; a single setting against its own first evaluation. (what against, entries)"""
    last = last_of(settings)
    if len(last) == 1:
        name = f"{next(iter(last))} at first"
        base = [run.evaluations[0] for run in settings[0].runs if len(run.evaluations) > 1]
    else:
        name = next(iter(last), "")
        base = last.pop(name, [])
    entries: list[Entry] = []
    for key in _measures(base):
        against = mean_and_spread([row.values[key] for row in base if key in row.values])[0]
        made = (_entry(key, label, rows, against, base) for label, rows in last.items())
        entries += [each for each in made if each is not None]
    return name, entries


def _measures(base: Sequence[Row]) -> Iterator[str]:
    """Of each play the number that stands for it."""
    for play in plays_of(base):
        known = (f"{play}/{name}" for name in MEASURES)
        yield from [key for key in known if any(key in row.values for row in base)][:1]


def _entry(key: str, label: str, rows: Sequence[Row], against: float, base: Sequence[Row] = ()) -> Entry | None:
    values = [row.values[key] for row in rows if key in row.values]
    if not values:
        return None
    mean, spread = mean_and_spread(values)
    return Entry(
        key=key,
        label=label,
        value=mean,
        spread=spread if len(values) > 1 else None,
        seeds=len(values),
        against=against,
        p=_p(key, rows, base) if base and key.rpartition("/")[2] in SHARES else None,
    )


def _p(key: str, rows: Sequence[Row], base: Sequence[Row]) -> float:
    """Over the graded episodes of all seeds: arXiv 2506.00845 tests its tables so, at 0.01."""
    (right, count), (other, others) = _counts(key, rows), _counts(key, base)
    return proportions_z_test(right, count, other, others)[1] if count and others else 1.0


def _counts(key: str, rows: Sequence[Row]) -> tuple[float, float]:
    """(right, graded) episodes, over seeds."""
    play, having = key.rpartition("/")[0], [row.values for row in rows if key in row.values]
    graded = [values[f"{play}/episodes"] - values.get(f"{play}/failures", 0.0) for values in having]
    return math.fsum(n * values[key] for n, values in zip(graded, having, strict=True)), math.fsum(graded)


def mean_change(entries: Sequence[Entry], label: str) -> float | None:
    """The mean over columns of x / x0 - 1: "Avg. Increase" (arXiv 2506.00845, table 2). None without a column."""
    found = [each.relative for each in entries if each.label == label and each.relative is not None]
    return math.fsum(found) / len(found) if found else None


# -- correlations ------------------------------------------------------------------------------------------------------


def scatters(settings: Sequence[Setting], synthetic: Sequence[str]) -> list[Scatter]:
    """Reward against accuracy in each play, a point for each evaluation under the same reward; with `synthetic` (names
    of plays) in those alone, and their accuracy against that of all others, a point for each run (arXiv 2506.00845,
    figure 3)."""
    plays = dict.fromkeys(play for s in settings for run in s.runs for play in plays_of(run.evaluations))
    found = [
        _scatter(f"{play}, {reward.get('name')}", "mean reward", "accuracy", _rewarded(settings, play, reward))
        for play in plays
        if not synthetic or play in synthetic
        for reward in _rewards(settings)
    ]
    if synthetic:
        others = [play for play in plays if play not in synthetic]
        points = list(_transferred(settings, synthetic, others))
        found.append(_scatter("Synthetic and other tasks", "accuracy on the synthetic ones", "on the others", points))
    return [each for each in found if each is not None]


def _rewards(settings: Sequence[Setting]) -> list[Mapping[str, Any]]:
    """The differing rewards of the runs: their values are no common scale."""
    found: list[Mapping[str, Any]] = []
    for run in (run for each in settings for run in each.runs):
        reward = run.config.get("reward") or {}
        found += [] if reward in found else [reward]
    return found


def _rewarded(settings: Sequence[Setting], play: str, reward: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    keys = (f"{play}/mean_reward", f"{play}/accuracy")
    runs = ((each.label, run) for each in settings for run in each.runs if (run.config.get("reward") or {}) == reward)
    rows = ((label, row.values) for label, run in runs for row in run.evaluations)
    return [(label, values[keys[0]], values[keys[1]]) for label, values in rows if all(key in values for key in keys)]


def _transferred(
    settings: Sequence[Setting], synthetic: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[str, float, float]]:
    for label, rows in last_of(settings).items():
        for row in rows:
            sides = [[row.values[f"{play}/accuracy"] for play in side if f"{play}/accuracy" in row.values]
                     for side in (synthetic, others)]  # fmt: skip
            if all(sides):
                yield label, math.fsum(sides[0]) / len(sides[0]), math.fsum(sides[1]) / len(sides[1])


def _scatter(title: str, x: str, y: str, points: Sequence[tuple[str, float, float]]) -> Scatter | None:
    if len(points) < 4:
        return None
    found = pearson([each[1] for each in points], [each[2] for each in points])
    if math.isnan(found.r):
        return None  # one side does not vary
    return Scatter(title=title, x_label=x, y_label=y, points=tuple(points), correlation=found)
