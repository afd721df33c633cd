"""Curves over steps: of each setting the mean over its seeds, and the spread where there are several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from launch.run_dir.runs import Measurement, Run
from launch.run_dir.settings import SeedGroup
from launch.run_dir.significance import mean_and_spread
from launch.tools.analysis.episodes import ANSWERED
from launch.tools.analysis.figures import DERIVED, EPISODE_TOKENS, Panel
from rlsys.summaries import CALLS, MOST_TURNS, REPEATED, VALID, column

By = Literal["step", "stage"]
COUNTED = tuple(map(column, (CALLS, VALID, REPEATED)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    stage: str
    x: int  # step, or message of the model
    mean: float
    spread: float | None  # standard deviation over seeds (ddof 1); None of a single one
    seeds: int
    low: float | None = None  # 95 % interval over the tasks of an evaluation, of a single seed
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    label: str
    points: tuple[Point, ...]
    runs: Mapping[str, Mapping[int, float]]  # of each run by itself, by x


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    unit: str
    key: str
    curves: tuple[Curve, ...]
    paper: float | None = None

    @property
    def points(self) -> list[Point]:
        return [point for curve in self.curves for point in curve.points]

    @property
    def is_share(self) -> bool:
        return self.unit.startswith("share")


def mean_over_seeds(
    rows: Sequence[Mapping[str, float]], key: str
) -> tuple[float, float | None, float | None, float | None]:
    """(mean, spread, None, None) of several seeds; (value, None, low, high) of one, with its interval over tasks."""
    mean, spread = mean_and_spread([row[key] for row in rows])
    if len(rows) > 1:
        return mean, spread, None, None
    return mean, None, rows[0].get(f"{key}_low"), rows[0].get(f"{key}_high")


def build_charts(
    panels: Sequence[Panel],
    settings: Sequence[SeedGroup[Run]],
    rows_of: Callable[[Run], Sequence[Measurement]],
    by: By,
    papers: Mapping[str, float],
    *,
    every: bool = True,
) -> list[Chart]:
    """One for each key of the rows that a panel shows. papers: figures of the papers, by key.

    every: also panels that say nothing without another one.
    """
    rows = {run: rows_of(run) for setting in settings for run in setting.runs}
    values = [row.values for run_rows in rows.values() for row in run_rows]
    keys = dict.fromkeys(key for metrics in values for key in metrics)
    charts = []
    for panel in panels:
        if panel.requires and not every and not any(metrics.get(panel.requires, 0) > 0 for metrics in values):
            continue
        for key in (key for key in keys if panel.shows(key, keys)):
            curves = tuple(line for setting in settings for line in _curves(key, setting, rows, by, len(settings) > 1))
            paper = papers.get(key)
            charts.append(Chart(title=panel.title_of(key), unit=panel.unit, key=key, curves=curves, paper=paper))
    return charts


def _curves(
    key: str, setting: SeedGroup[Run], rows: Mapping[Run, Sequence[Measurement]], by: By, several: bool
) -> Iterator[Curve]:
    """One, or one of each stage, of which the later of two evaluations after one step counts.

    several: there are other settings.
    """
    by_label: dict[str, dict[tuple[int, str], dict[Run, Mapping[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    for run in setting.runs:
        for row in (row for row in rows[run] if key in row.values):
            if by == "step":
                by_label[setting.label][row.step, row.stage][run] = row.values
            else:
                label = f"{setting.label}, {row.stage}" if several else row.stage
                by_label[label][row.stage_step, row.stage][run] = row.values
    stages = {name: place for run in reversed(setting.runs) for place, name in enumerate(run.stages)}
    for label, places in by_label.items():
        order = sorted(places, key=lambda place: (place[0], stages.get(place[1], 0)))
        points = tuple(_point(stage, x, key, list(places[x, stage].values())) for x, stage in order)
        runs = {
            str(run.path): {place[0]: places[place][run][key] for place in order if run in places[place]}
            for run in setting.runs
        }
        yield Curve(label=label, points=points, runs=runs)


def _point(stage: str, x: int, key: str, seeds: Sequence[Mapping[str, float]]) -> Point:
    mean, spread, low, high = mean_over_seeds(seeds, key)
    return Point(stage=stage, x=x, mean=mean, spread=spread, seeds=len(seeds), low=low, high=high)


def add_derived(rows: Sequence[Measurement], calling: bool) -> list[Measurement]:
    """With the shares of DERIVED whose counts are there, and whose whole is not 0.

    calling: whether any run calls tools: steps of episodes without a call, which have no column of calls, have 0 then.
    """
    derived = []
    for row in rows:
        none = dict.fromkeys(COUNTED, 0.0) if calling and EPISODE_TOKENS in row.values else {}
        values = {**none, **row.values}
        for name, (part, *total_keys) in DERIVED.items():
            total = sum(values.get(key, 0.0) for key in total_keys)
            if total > 0 and values.keys() >= {part, *total_keys}:
                values[name] = values[part] / total
        derived.append(replace(row, values=values))
    return derived


def any_calls(runs: Iterable[Run]) -> bool:
    """Whether some of them call a tool: a missing count of the others is then 0, and not unknown."""
    return any(column(CALLS) in row.values for run in runs for row in run.rows)


def average_finish(rows: Sequence[Measurement], by: By, last: int) -> list[Measurement]:
    """Of each stage (by step: of the last) the mean of its `last` rows; a row's "step" is the number of a message.

    A row has columns up to the longest episode of its step: beyond that the share stays what it is.
    """
    by_stage: dict[str, list[list[float]]] = {}
    for row in rows:
        answered = (row.values.get(f"{ANSWERED}{turn}") for turn in range(1, MOST_TURNS + 1))
        if shares := [share for share in answered if share is not None]:
            by_stage.setdefault(row.stage, []).append(shares)
    measurements = []
    for stage in list(by_stage) if by == "stage" else list(by_stage)[-1:]:
        shares_of = by_stage[stage][-last:]
        longest = max(map(len, shares_of))
        means = np.mean([np.pad(shares, (0, longest - len(shares)), mode="edge") for shares in shares_of], axis=0)
        measurements += [
            Measurement(stage=stage, step=turn, stage_step=turn, values={f"{ANSWERED}*": float(mean)})
            for turn, mean in enumerate(means, start=1)
        ]
    return measurements
