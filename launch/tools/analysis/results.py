"""Evaluations of runs: the last ones next to a paper's figures, and whether accuracy rises with the reward."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.run_dir.runs import Run, list_plays
from launch.run_dir.settings import SeedGroup
from launch.run_dir.significance import Correlation, pearson
from launch.tools.analysis.curves import mean_over_seeds

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


def paper_figures(run: Run) -> dict[str, float]:
    """{"musique/greedy/exact_match": 0.223}: of `eval.paper` and `eval.sets.NAME.paper`, also those of a stage."""
    by_set: dict[str, dict[str, Any]] = defaultdict(dict)  # by set; the held-out tasks have no name
    for config in (run.config, *run.config["stages"]):
        evaluation = config.get("eval") or {}
        for name, eval_set in {"": evaluation, **(evaluation.get("sets") or {})}.items():
            by_set[name] |= (eval_set or {}).get("paper") or {}
    figures: dict[str, float] = {}
    for play in list_plays(run.evaluations):
        name, _, how = play.rpartition("/")
        for key, value in by_set[name].items():
            metric = key.removeprefix(f"{how}/")
            if type(value) in (int, float) and (metric != key or "/" not in key):  # null takes a figure back
                figures[f"{play}/{metric}"] = float(value)
    return figures


def common_paper_figures(settings: Sequence[SeedGroup[Run]]) -> dict[str, float]:
    """The figures that all settings have which have one: those of different experiments are no single line."""
    figures: dict[str, set[float]] = defaultdict(set)
    for run in (run for setting in settings for run in setting.runs):
        for key, value in paper_figures(run).items():
            figures[key].add(value)
    return {key: values.pop() for key, values in figures.items() if len(values) == 1}


def collect_results(settings: Sequence[SeedGroup[Run]]) -> list[Entry]:
    """Of each play the number that stands for it, and those that the recipe has a paper's figure for."""
    papers = {setting.label: common_paper_figures([setting]) for setting in settings}
    entries: list[Entry] = []
    for play in list_plays(row for setting in settings for run in setting.runs for row in run.evaluations):
        last = {setting.label: _last_values(setting.runs, f"{play}/episodes") for setting in settings}
        keys = {key for rows in last.values() for row in rows for key in row}
        measured = [f"{play}/{name}" for name in MEASURES if f"{play}/{name}" in keys][:1]
        printed = [key for figures in papers.values() for key in figures if key.rpartition("/")[0] == play]
        for key in dict.fromkeys((*measured, *printed)):
            for label, rows in last.items():
                if seeds := [row for row in rows if key in row]:
                    entries.append(_entry(key, label, seeds, papers[label].get(key)))
    return entries


def _last_values(runs: Sequence[Run], key: str) -> list[Mapping[str, float]]:
    """Values of the last evaluation that has this key, of the runs that got as far as the furthest one."""
    rows = [row for run in runs for row in [row for row in run.evaluations if key in row.values][-1:]]
    furthest = max(rows, key=lambda row: row.step, default=None)
    return [row.values for row in rows if furthest is not None and row.at == furthest.at]


def _entry(key: str, label: str, seeds: Sequence[Mapping[str, float]], paper: float | None) -> Entry:
    value, spread, low, high = mean_over_seeds(seeds, key)
    return Entry(key=key, label=label, value=value, spread=spread, low=low, high=high, seeds=len(seeds), paper=paper)


def correlate_rewards(settings: Sequence[SeedGroup[Run]]) -> list[Scatter]:
    """Reward against accuracy in each play, a point for each evaluation under the same reward: the values of different
    ones are no common scale. Those of four points and more, unless one side does not vary."""
    evaluations = [(setting.label, run, row) for setting in settings for run in setting.runs for row in run.evaluations]
    by_reward: dict[tuple[str, int], list[tuple[str, float, float]]] = defaultdict(list)
    rewards: list[Mapping[str, Any]] = []  # compared by ==: the order of their keys does not matter, nor 1 for 1.0
    for play in list_plays(row for _, _, row in evaluations):
        for label, run, row in evaluations:
            reward = _reward(run, row.stage)
            mean, right = (row.values.get(f"{play}/{name}") for name in ("mean_reward", "accuracy"))
            if mean is not None and right is not None:
                rewards += [] if reward in rewards else [reward]
                by_reward[f"{play}, {reward.get('name')}", rewards.index(reward)].append((label, mean, right))
    scatters = [
        Scatter(title=title, points=tuple(points), correlation=pearson(*list(zip(*points, strict=True))[1:]))
        for (title, _), points in by_reward.items()
        if len(points) > 3
    ]
    return [scatter for scatter in scatters if not math.isnan(scatter.correlation.r)]


def _reward(run: Run, stage: str) -> Mapping[str, Any]:
    """With what the stage changes."""
    stage_config: Mapping[str, Any] = next(
        (config for config, name in zip(run.config["stages"], run.stages, strict=True) if name == stage), {}
    )
    return {**(run.config.get("reward") or {}), **(stage_config.get("reward") or {})}
