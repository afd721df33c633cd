"""Evaluations of runs: the last ones beside a paper's figures, and whether more reward goes along with more right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.analysis.episodes import plays_of
from launch.analysis.papers import papers_of
from launch.analysis.runs import Row, Setting
from rlsys.stats import Correlation, mean_and_spread, pearson


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One number of one setting beside the paper's."""

    key: str  # play/metric
    label: str
    value: float  # mean over seeds
    spread: float | None  # standard deviation over seeds (ddof 1); None of a single one
    seeds: int
    against: float  # the paper's

    @property
    def difference(self) -> float:
        return self.value - self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    title: str
    points: tuple[tuple[str, float, float], ...]  # (setting, mean reward, accuracy)
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


def _entry(key: str, label: str, rows: Sequence[Row], against: float) -> Entry | None:
    values = [row.values[key] for row in rows if key in row.values]
    if not values:
        return None
    mean, spread = mean_and_spread(values)
    spreads = spread if len(values) > 1 else None
    return Entry(key=key, label=label, value=mean, spread=spreads, seeds=len(values), against=against)


def scatters(settings: Sequence[Setting]) -> list[Scatter]:
    """Reward against accuracy in each play, a point for each evaluation under the same reward."""
    plays = dict.fromkeys(play for s in settings for run in s.runs for play in plays_of(run.evaluations))
    made = (_scatter(settings, play, reward) for play in plays for reward in _rewards(settings))
    return [each for each in made if each is not None]


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


def _scatter(settings: Sequence[Setting], play: str, reward: Mapping[str, Any]) -> Scatter | None:
    points = _rewarded(settings, play, reward)
    if len(points) < 4:
        return None
    found = pearson([each[1] for each in points], [each[2] for each in points])
    if math.isnan(found.r):
        return None  # one side does not vary
    return Scatter(title=f"{play}, {reward.get('name')}", points=tuple(points), correlation=found)
