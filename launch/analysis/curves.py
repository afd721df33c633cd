"""Curves over steps: of each setting the mean over its seeds, and the spread where there are several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from launch.analysis.episodes import ANSWERED
from launch.analysis.figures import EPISODES, Figure, Panel, derived
from launch.analysis.runs import Measurement, Run, SeedGroup
from rlsys.stats import mean_and_spread
from rlsys.summaries import CALLS, MOST_TURNS, REPEATED, VALID, column

By = Literal["step", "stage"]
LAST = 10  # rows of a stage whose mean says with which message its episodes end
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
    def flat(self) -> bool:
        """0 throughout."""
        return not any(point.mean for curve in self.curves for point in curve.points)

    @property
    def single(self) -> bool:
        """No curve has two points."""
        return all(len(curve.points) < 2 for curve in self.curves)

    @property
    def share(self) -> bool:
        return self.unit.startswith("share")


def charts(
    figure: Figure,
    found: Mapping[SeedGroup, Mapping[Run, Sequence[Measurement]]],
    by: By,
    papers: Mapping[str, float],
    *,
    every: bool = True,
) -> tuple[Chart, ...]:
    """found: of each run the rows that the figure reads. papers: figures of the papers, by key. () where none fits.

    every: also panels that say nothing without another one.
    """
    rows = [row for runs in found.values() for own in runs.values() for row in own]
    keys = dict.fromkeys(key for row in rows for key in row.values)
    above = {key for row in rows for key, value in row.values.items() if value > 0}
    shown = [panel for panel in figure.panels if every or not panel.beside or panel.beside in above]
    lone = figure.source == "evaluations"  # what was evaluated once is a result and no curve
    made = (_chart(panel, key, found, by, papers.get(key)) for panel in shown for key in keys if panel.fits(key, keys))
    return tuple(each for each in made if each.curves and not (lone and each.single))


def _chart(
    panel: Panel, key: str, found: Mapping[SeedGroup, Mapping[Run, Sequence[Measurement]]], by: By, paper: float | None
) -> Chart:
    curves = []
    for setting, runs in found.items():
        stages = list(dict.fromkeys(stage for run in setting.runs for stage in run.stages))
        for part in [[stage] for stage in stages] if by == "stage" else [stages]:
            label = setting.label if by == "step" else part[0] if len(found) == 1 else f"{setting.label}, {part[0]}"
            curve = _curve(
                label, key, {run: [row for row in rows if row.stage in part] for run, rows in runs.items()}, by
            )
            curves += [curve] if curve.points else []
    return Chart(title=panel.called(key), unit=panel.unit, key=key, curves=tuple(curves), paper=paper)


def _curve(label: str, key: str, runs: Mapping[Run, Sequence[Measurement]], by: By) -> Curve:
    values: dict[tuple[int, str], list[Measurement]] = {}
    single: dict[str, dict[int, float]] = {}
    for run, rows in runs.items():
        order = {stage: place for place, stage in enumerate(run.stages)}
        own: dict[tuple[int, str], Measurement] = {}  # of two evaluations after one step the later one counts
        for row in sorted(rows, key=lambda row: order.get(row.stage, len(order))):
            if key in row.values:
                own[row.stage_step if by == "stage" else row.step, row.stage] = row
        for place, row in own.items():
            values.setdefault(place, []).append(row)
        single[str(run.path)] = {place[0]: own[place].values[key] for place in sorted(own)}
    points = (_point(stage, x, key, own) for (x, stage), own in values.items())
    return Curve(label=label, points=tuple(sorted(points, key=lambda point: point.x)), runs=single)


def _point(stage: str, x: int, key: str, own: Sequence[Measurement]) -> Point:
    mean, spread = mean_and_spread([row.values[key] for row in own])
    if len(own) > 1:
        return Point(stage=stage, x=x, mean=mean, spread=spread, seeds=len(own))
    low, high = (own[0].values.get(f"{key}_{end}") for end in ("low", "high"))
    return Point(stage=stage, x=x, mean=mean, spread=None, seeds=1, low=low, high=high)


def any_calls(runs: Iterable[Run]) -> bool:
    """Whether some of them call a tool: what the others do not is 0 then, and nothing that nobody knows."""
    return any(column(CALLS) in row.values for run in runs for row in run.rows)


def add_derived(rows: Sequence[Measurement], calling: bool) -> list[Measurement]:
    """With the shares of DERIVED. calling: whether any run calls tools: steps of episodes without a call, which have
    no column of calls, have 0 of them then."""
    found = []
    for row in rows:
        none = dict.fromkeys(COUNTED, 0.0) if calling and EPISODES in row.values else {}
        values = {**none, **row.values}
        found.append(replace(row, values={**values, **derived(values)}))
    return found


def finished(rows: Sequence[Measurement], by: By, key: str, last: int) -> list[Measurement]:
    """Of each stage (by step: of the last) the mean of its `last` rows; a row's "step" is the number of a message.

    A row has columns up to the longest episode of its step: beyond that the share stays what it is.
    """
    by_stage: dict[str, list[Measurement]] = {}
    for row in rows:
        if f"{ANSWERED}1" in row.values:
            by_stage.setdefault(row.stage, []).append(row)
    chosen = list(by_stage) if by == "stage" else list(by_stage)[-1:]
    found = []
    for stage in chosen:
        shares = [_carried(row.values) for row in by_stage[stage][-last:]]
        for place in range(max(map(len, shares))):
            value = sum(own[min(place, len(own) - 1)] for own in shares) / len(shares)
            found.append(Measurement(stage=stage, step=place + 1, stage_step=place + 1, values={key: value}))
    return found


def _carried(values: Mapping[str, float]) -> list[float]:
    turns = range(1, MOST_TURNS + 1)
    return [values[f"{ANSWERED}{turn}"] for turn in turns if f"{ANSWERED}{turn}" in values]
