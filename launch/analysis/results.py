"""Evaluations of runs: the last ones beside a paper's figures, and whether more reward goes along with more right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.analysis.episodes import plays_of
from launch.analysis.runs import Measurement, Run, SeedGroup
from rlsys.stats import Correlation, mean_and_spread, pearson

MEASURES = ("constraints_pooled", "exact_match", "accuracy", "mean_reward")  # the first that a play has stands for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One number of one setting. Entry(key="musique/greedy/exact_match", label="q", value=0.21, ..., paper=0.223)"""

    key: str  # play/metric
    label: str
    value: float  # mean over seeds
    spread: float | None  # standard deviation over seeds (ddof 1); None of a single one
    low: float | None  # 95 % interval over the tasks of a single run, where it is the play's main number
    high: float | None
    seeds: int
    paper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    title: str
    points: tuple[tuple[str, float, float], ...]  # (setting, mean reward, accuracy)
    correlation: Correlation


def papers_of(run: Run) -> dict[str, float]:
    """{"musique/greedy/exact_match": 0.223}: of `eval.paper` and `eval.sets.NAME.paper`, also those of a stage."""
    given: dict[str, Mapping[str, Any]] = {}  # by set; the held-out tasks have no name
    for config in (run.config, *run.config["stages"]):
        evaluation = config.get("eval") or {}
        given[""] = {**given.get("", {}), **(evaluation.get("paper") or {})}
        for name, one in (evaluation.get("sets") or {}).items():
            given[name] = {**given.get(name, {}), **((one or {}).get("paper") or {})}
    found: dict[str, float] = {}
    for play in plays_of(run.evaluations):
        name, _, how = play.rpartition("/")
        for key, value in given.get(name, {}).items():
            if type(value) in (int, float) and (
                "/" not in key or key.startswith(f"{how}/")
            ):  # null takes a figure back
                found[f"{play}/{key.removeprefix(f'{how}/')}"] = float(value)
    return found


def papers_of_all(settings: Sequence[SeedGroup]) -> dict[str, float]:
    """The figures that all settings have which have one: those of different experiments are no single line."""
    found: dict[str, set[float]] = {}
    for run in (run for each in settings for run in each.runs):
        for key, value in papers_of(run).items():
            found.setdefault(key, set()).add(value)
    return {key: next(iter(values)) for key, values in found.items() if len(values) == 1}


def results(settings: Sequence[SeedGroup]) -> list[Entry]:
    """Of each play the number that stands for it, and those that the recipe has a paper's figure for."""
    papers = {each.label: papers_of_all([each]) for each in settings}
    plays = dict.fromkeys(play for s in settings for run in s.runs for play in plays_of(run.evaluations))
    found: list[Entry] = []
    for play in plays:
        last = {each.label: _last(each.runs, f"{play}/episodes") for each in settings}
        known = [name for name in MEASURES if any(f"{play}/{name}" in own for runs in last.values() for own in runs)]
        printed = (key for own in papers.values() for key in own if key.rpartition("/")[0] == play)
        for key in dict.fromkeys((*(f"{play}/{name}" for name in known[:1]), *printed)):
            made = (_entry(key, label, runs, papers[label].get(key)) for label, runs in last.items())
            found += [each for each in made if each is not None]
    return found


def _last(runs: Sequence[Run], key: str) -> list[Mapping[str, float]]:
    """What the last evaluation with this key came to, in the runs that have come as far as the one that is furthest."""
    each = [[row for row in run.evaluations if key in row.values][-1:] for run in runs]
    rows = [row for own in each for row in own]
    furthest = max(rows, key=lambda row: row.step, default=None)
    return [row.values for row in rows if furthest is not None and _point(row) == _point(furthest)]


def _point(row: Measurement) -> tuple[int, str, str]:
    return row.step, row.stage, row.when


def _entry(key: str, label: str, runs: Sequence[Mapping[str, float]], paper: float | None) -> Entry | None:
    having = [own for own in runs if key in own]
    if not having:
        return None
    values = [own[key] for own in having]
    (mean, spread), single = mean_and_spread(values), len(values) == 1
    low, high = (having[0].get(f"{key}_{end}") if single else None for end in ("low", "high"))
    return Entry(
        key=key,
        label=label,
        value=mean,
        spread=None if single else spread,
        low=low,
        high=high,
        seeds=len(values),
        paper=paper,
    )


def scatters(settings: Sequence[SeedGroup]) -> list[Scatter]:
    """Reward against accuracy in each play, a point for each evaluation under the same reward."""
    plays = dict.fromkeys(play for s in settings for run in s.runs for play in plays_of(run.evaluations))
    made = (_scatter(settings, play, reward) for play in plays for reward in _rewards(settings))
    return [each for each in made if each is not None]


def _rewards(settings: Sequence[SeedGroup]) -> list[Mapping[str, Any]]:
    """The differing rewards of the runs: their values are no common scale."""
    found: list[Mapping[str, Any]] = []
    for run in (run for each in settings for run in each.runs):
        for stage in run.stages:
            reward = _reward(run, stage)
            found += [] if reward in found else [reward]
    return found


def _reward(run: Run, stage: str) -> Mapping[str, Any]:
    """With what the stage changes."""
    own: Mapping[str, Any] = next(
        (each for each, name in zip(run.config["stages"], run.stages, strict=True) if name == stage), {}
    )
    return {**(run.config.get("reward") or {}), **(own.get("reward") or {})}


def _rewarded(settings: Sequence[SeedGroup], play: str, reward: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    keys = (f"{play}/mean_reward", f"{play}/accuracy")
    runs = ((each.label, run) for each in settings for run in each.runs)
    rows = ((label, row.values) for label, run in runs for row in run.evaluations if _reward(run, row.stage) == reward)
    return [(label, values[keys[0]], values[keys[1]]) for label, values in rows if all(key in values for key in keys)]


def _scatter(settings: Sequence[SeedGroup], play: str, reward: Mapping[str, Any]) -> Scatter | None:
    points = _rewarded(settings, play, reward)
    if len(points) < 4:
        return None
    found = pearson([each[1] for each in points], [each[2] for each in points])
    if math.isnan(found.r):
        return None  # one side does not vary
    return Scatter(title=f"{play}, {reward.get('name')}", points=tuple(points), correlation=found)
