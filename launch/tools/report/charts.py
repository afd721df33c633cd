"""The series of the charts: of each run and stage one line, over steps, hours and trained tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from launch.driver.observe.meanings import meaning_of
from launch.run_dir.directory import RunDirectory
from launch.run_dir.table import Floats, Rows
from launch.tools.report.chart_table import CHARTS, ChartSpec
from launch.tools.report.facts import Stage, all_stages, count_end_steps
from launch.tools.report.seconds import INSIDE, STEP, phase_label
from launch.tools.report.verdict import points_by_play
from launch.tools.report.words import is_number, mean, number, total

POINTS = 2_000  # of a series: more are averaged, with their lowest and highest as a band
SERIES = 12  # of a chart and a run
DIGITS = 6  # of a number in a chart
HELD_OUT = "held-out"  # a series, or before the name of a play beside training
# Numbers of the colours of report.css, where it says what each means: of what trains, of held-out tasks, of the others
# of a chart, of what failed and of limits, of the rest.
TRAINED, PLAYED, OTHERS, FAILED, REST = (0,), (1, 2), (3, 4, 5, 6, 7, 8), 9, 10
FIXED = {"its limit": FAILED, "failed": FAILED, "other": REST}
MARKS = 200  # lines of events in a chart: more cover it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChartedRun:
    """A run with what all of its charts need."""

    run: RunDirectory
    at: int  # among the runs of the report
    label: str  # "" of a single run
    size: int | None  # steps that a point stands for, the same in all of several runs; None of a single run
    stages: Sequence[Stage]
    hours: Sequence[Floats | None]  # of each stage [N], see `hours_by_step`
    tokens: Sequence[Floats]  # of each stage [N]: trained so far, over all stages

    @staticmethod
    def of(run: RunDirectory, at: int, label: str, size: int | None) -> ChartedRun:
        stages = all_stages(run)
        whole_hours, trained = hours_by_step(run), np.cumsum(np.nan_to_num(run.rows.column("tokens/trained")))
        masks = [np.array([name == stage.name for name in run.rows.stage], bool) for stage in stages]
        hours = [None if whole_hours is None else whole_hours[mask] for mask in masks]
        tokens = [trained[mask] for mask in masks]
        return ChartedRun(run=run, at=at, label=label, size=size, stages=stages, hours=hours, tokens=tokens)


def make_charts(runs: Sequence[RunDirectory], labels: Sequence[str]) -> dict[str, Any]:
    """By id, without those that no run has numbers for. labels: of the runs; "" of a single one."""
    longest = max((int(run.rows.step[-1]) for run in runs if len(run.rows)), default=0)
    size = max(1, math.ceil(longest / POINTS)) if len(runs) > 1 else None
    views = [ChartedRun.of(run, at, labels[at], size) for at, run in enumerate(runs)]
    charts: dict[str, Any] = {}
    for name, base_spec in CHARTS.items():
        spec = base_spec if len(runs) == 1 else compared_spec(base_spec, views)
        series = [line for view in views for line in _series_of_run(spec, view)]
        if any(any(value is not None for value in line["y"]) for line in series):
            charts[name] = _chart_json(spec, views, series)
    return charts


def colour_labels(charts: dict[str, Any], *, compared: bool = False) -> None:
    """Give each series the number of its colour: the same for the same label in all charts of a page.

    compared: a label is a setting, whose colour is that of its held-out tasks too.
    """
    palette = dict(FIXED)
    for chart in charts.values():
        labels = {_label_without_prefix(line): _is_held_out(line) and not compared for line in chart["series"]}
        colours: dict[str, int] = {}
        before = [label for label in palette if label in labels]  # those with a colour take it first, the oldest before
        for label in (*before, *(label for label in labels if label not in palette)):
            own = (*PLAYED, *OTHERS) if labels[label] else (*TRAINED, *OTHERS)
            free = [at for at in own if at not in colours.values()] or [own[len(colours) % len(own)]]
            known = palette.setdefault(label, free[0])
            colours[label] = known if label in FIXED or known not in colours.values() else free[0]
        for line in chart["series"]:
            line["colour"] = colours[_label_without_prefix(line)]


def _label_without_prefix(line: Mapping[str, Any]) -> str:
    return str(line["label"]).removeprefix(f"{HELD_OUT} ")


def _is_held_out(line: Mapping[str, Any]) -> bool:
    return bool(line["kind"] == "dots" or line["label"] == HELD_OUT)


def compared_spec(spec: ChartSpec, runs: Sequence[ChartedRun]) -> ChartSpec:
    """Of several runs a chart has one line each: of the same key in all of them, which its title names.

    Of a * that is the whole step, or the first key that most of the runs have.
    """
    label, key = next(iter(spec.keys.items()))
    several = len(spec.keys) > 1 or "*" in key
    if "*" in key:
        counts = Counter(column for run in runs for column in matching_keys(key, run.run.rows))
        if fnmatchcase(STEP, key):
            label, key = "the whole step", STEP
        elif counts:
            common_key = min(counts, key=lambda name: (-counts[name], _natural_sort_key(name)))
            label, key = _wildcard_text(key, common_key), common_key
    if spec.source == "held_out":
        plays = Counter(play for run in runs for play in points_by_play(run.run))
        label = key = next((play for play, count in plays.items() if count == max(plays.values())), "")
        several = len(plays) > 1
    meaning = spec.about if key in spec.keys.values() or spec.source == "held_out" else meaning_of(key)
    title = f"{spec.title}: {label}" if several and label else spec.title
    return replace(spec, title=title, keys={label: key}, about=meaning, band=None)


def _chart_json(spec: ChartSpec, runs: Sequence[ChartedRun], series: list[dict[str, Any]]) -> dict[str, Any]:
    first = next(iter(spec.keys.values()))
    return {
        "title": spec.title,
        "unit": spec.unit,
        "about": spec.about or meaning_of(first),
        "x": "step",
        "log": spec.log,
        "stacked": spec.stacked and len(runs) == 1,
        "limit": _limit_json(spec, runs),
        "series": series,
        "marks": _event_marks(runs[0]) if len(runs) == 1 else [],
        "summary": _describe_series(series),
    }


def _limit_json(spec: ChartSpec, runs: Sequence[ChartedRun]) -> dict[str, Any] | None:
    """The line of a limit from the configuration; None where the runs differ in it."""
    if not spec.limit:
        return None
    values = {limit_from_config(run, spec.limit) for run in runs}
    value = values.pop() if len(values) == 1 else None
    return {"y": value, "label": spec.limit} if value is not None else None


def limit_from_config(view: ChartedRun, key: str) -> float | None:
    """None of what is no finite number: a chart has no place for it, and JSON no word."""
    name = view.stages[-1].name if view.stages else None
    value = view.run.setting(key, name)
    return float(value) if is_number(value) else None


def _series_of_run(spec: ChartSpec, view: ChartedRun) -> Iterator[dict[str, Any]]:
    if spec.source == "held_out":
        yield from _held_out_series(view, only_shares=False, only=next(iter(spec.keys.values())))
        return
    for stage, hours, tokens in zip(view.stages, view.hours, view.tokens, strict=True):
        for name, column, band in _columns_with_bands(spec, stage):
            if not np.isnan(column).all():
                yield {
                    "label": view.label or name or spec.title,
                    "run": view.at,
                    "stage": stage.name,
                    "kind": spec.form if not view.label else "line",
                    **_downsample_points(stage.rows.step, column, band, {"hours": hours, "tokens": tokens}, view.size),
                }
    if "right" in spec.keys.values():
        yield from _held_out_series(view, only_shares=True)


def _columns_with_bands(spec: ChartSpec, stage: Stage) -> Iterator[tuple[str, Floats, tuple[Floats, Floats] | None]]:
    """(name, [N] numbers, band) of a stage."""
    columns = list(_derived_columns(spec, stage) if spec.source == "derived" else _columns_by_key(spec, stage.rows))
    for name, column in columns[:SERIES]:
        band = None
        if spec.band and name == "":
            band = stage.rows.column(spec.band[0]), stage.rows.column(spec.band[1])
        yield name, column, band


def _columns_by_key(spec: ChartSpec, rows: Rows) -> Iterator[tuple[str, Floats]]:
    for label, key in spec.keys.items():
        if "*" not in key:
            yield label, rows.column(key)
            continue
        keys = matching_keys(key, rows)
        for name in sorted(
            keys,
            key=lambda name: (-_sum_of_magnitudes(rows.known(name)) if spec.stacked else 0.0, _natural_sort_key(name)),
        ):
            yield _wildcard_text(key, name), rows.column(name)


def matching_keys(pattern: str, rows: Rows) -> list[str]:
    """Keys of the rows that a * stands for."""
    return [key for key in rows.columns if fnmatchcase(key, pattern) and key != STEP and not key.startswith(INSIDE)]


def _wildcard_text(pattern: str, key: str) -> str:
    head, _, tail = pattern.partition("*")
    name = key.removeprefix(head).removesuffix(tail)
    return phase_label(name) if head == "time/" else name


def _sum_of_magnitudes(values: Floats) -> float:
    return total(np.abs(values))


def _natural_sort_key(key: str) -> list[tuple[int, int, str]]:
    """turn_2 before turn_10; 1k_2k before 16k_32k."""
    parts = key.replace("k_", "_").split("_")
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _derived_columns(spec: ChartSpec, stage: Stage) -> Iterator[tuple[str, Floats]]:
    for label, key in spec.keys.items():
        yield label, DERIVED[key](stage)
        if key == "right" and len(stage.right_by_env) > 1:
            yield from stage.right_by_env.items()


def right_by_step(stage: Stage) -> Floats:
    """[N] share of right answers of each step."""
    return stage.right


def share_without_signal(stage: Stage) -> Floats:
    """[N] share of the groups of each step that had no signal."""
    trained, filtered = (stage.rows.column(f"groups/{name}") for name in ("trained", "filtered"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return filtered / (trained + filtered)


def engine_busy_by_step(stage: Stage) -> Floats:
    """[N], nan of the first step, and where an engine came back and counts from 0."""
    busy, alive = (np.diff(stage.rows.column(f"engine/{name}_s"), prepend=np.nan) for name in ("busy", "alive"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((alive > 0) & (busy >= 0), busy / alive, np.nan)


def learner_busy_by_step(stage: Stage) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return stage.rows.column("time/update") / stage.rows.column("time/step")


DERIVED = {
    "right": right_by_step,
    "signal": share_without_signal,
    "engine_busy": engine_busy_by_step,
    "learner_busy": learner_busy_by_step,
}


def hours_by_step(run: RunDirectory) -> Floats | None:
    """[N] since the first attempt began, the time between two attempts included; of an old run its own seconds."""
    times = run.rows.column("time")
    if len(times) and not np.isnan(times).any():
        began = run.starts[0].time if run.starts else None
        return (times - float(times[0] if began is None else began)) / 3600
    seconds = run.rows.column("wall_s")
    return seconds / 3600 if len(seconds) and not np.isnan(seconds).any() else None


def _downsample_points(
    steps: npt.NDArray[np.int64],
    column: Floats,
    band: tuple[Floats, Floats] | None,
    axes: Mapping[str, Floats | None],
    size: int | None,
) -> dict[str, Any]:
    """All of them, or where they are too many the mean, the lowest and the highest of as many as are drawn as one.

    size: of several runs the steps of a point. Its x is the first of them then, so that seeds have the same.
    """
    alone = size is None
    size = size or max(1, math.ceil(len(column) / POINTS))
    grid = np.arange(len(column)) // size if alone else (steps - 1) // size
    begins = np.flatnonzero(np.diff(grid, prepend=-1))
    if size == 1:
        low, high = band or (None, None)
        x, y = steps, column
    else:
        lowest, highest = band or (column, column)
        low, high = np.fmin.reduceat(lowest, begins), np.fmax.reduceat(highest, begins)
        counts = np.add.reduceat((~np.isnan(column)).astype(float), begins)
        with np.errstate(invalid="ignore", divide="ignore"):
            y = np.add.reduceat(np.nan_to_num(column), begins) / np.where(counts > 0, counts, np.nan)
        ends = np.append(begins[1:], len(column)) - 1
        x = steps[ends] if alone else np.maximum(grid[begins] * size + 1, steps[0])
        axes = {key: None if axis is None else axis[ends] for key, axis in axes.items()}
    points: dict[str, Any] = {"x": [int(step) for step in x], "y": _round_or_none(y)}
    points |= {
        "low": None if low is None else _round_or_none(low),
        "high": None if high is None else _round_or_none(high),
    }
    return points | {key: _round_or_none(axis) for key, axis in axes.items() if axis is not None}


def _round_or_none(values: Floats) -> list[float | None]:
    return [round_value(float(value)) for value in values]


def round_value(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _held_out_series(view: ChartedRun, only_shares: bool, only: str = "") -> Iterator[dict[str, Any]]:
    """A series of dots for each play. only: for this one."""
    for play, points in points_by_play(view.run).items():
        if only not in ("", play):
            continue
        selected = [point for point in points if point.result.is_share or not only_shares]
        if not selected:
            continue
        intervals = [point.interval or (point.value, point.value) for point in selected]
        yield {
            "label": view.label or (f"{HELD_OUT} {play}" if only_shares else play),
            "run": view.at,
            "stage": selected[-1].of.stage,
            "kind": "dots",
            "x": [point.of.step for point in selected],
            "y": [round_value(point.value) for point in selected],
            "low": [round_value(low) for low, _ in intervals],
            "high": [round_value(high) for _, high in intervals],
        }
        if view.label:
            return


def _event_marks(view: ChartedRun) -> list[dict[str, Any]]:
    """Beginnings of stages, evaluations, checkpoints, restarts; where they are too many, the first kinds of these."""
    marks = [
        {"x": int(stage.rows.step[0]), "label": f"stage {stage.name}", "kind": "stage"} for stage in view.stages[1:]
    ]
    marks += [{"x": row.step, "label": f"evaluation {row.when}", "kind": "evaluation"} for row in view.run.evaluations]
    kinds = {"restart": "restart", "lost": "restart", "checkpoint": "checkpoint"}
    for kind in kinds:
        marks += [
            {"x": event.step, "label": f"{kind} {event.who}".strip(), "kind": kinds[kind]}
            for event in view.run.events_of(kind)
            if event.step is not None
        ]
    return marks[:MARKS]


def _describe_series(series: Sequence[Mapping[str, Any]]) -> str:
    """In words, for those who cannot see the chart: of the first line of the last stage, which is named where the curve
    is of several; of dots their ends."""
    if len({line["run"] for line in series}) > 1:
        return ""
    lines = [line for line in series if line["kind"] != "dots"] or list(series)[:1]
    curve = next(line for line in lines if line["stage"] == lines[-1]["stage"])
    values = [value for value in curve["y"] if value is not None]
    if not values:
        return ""
    count = 1 if curve["kind"] == "dots" else count_end_steps(len(values))
    names = [str(curve[key]) for key in ("stage", "label") if len({line[key] for line in lines}) > 1]
    head = f"{', '.join(names)}: " if names else ""
    of = f" {count} of {len(values)}" if count > 1 else ""
    return f"{head}first{of}: {number(mean(values[:count]))}; last{of and f' {count}'}: {number(mean(values[-count:]))}"
