"""Charts as PNG. Colours are Okabe and Ito's, which colour-blind people tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from launch.run_dir.runs import Run
from launch.run_dir.settings import SeedGroup
from launch.tools.analysis.curves import Chart, Curve
from launch.tools.analysis.figures import FIGURES
from launch.tools.analysis.results import Entry, Scatter

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#999933")
STYLES = cycler(linestyle=("-", "--", "-.", ":")) * cycler(color=COLOURS)
DARK, GREY, PALE = "#222222", "#777777", "#E4E4E4"
LOOK = {
    "text.parse_math": False,  # a name with two $ is a name
    "savefig.dpi": 130,
    "savefig.bbox": "tight",  # the legend stands outside
    "font.size": 8.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelcolor": GREY,
    "axes.edgecolor": PALE,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": PALE,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left", "legend.frameon"), False),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0),
}
SIZE = (4.6, 3.1)  # inches of one pair of axes
POINTS = 60  # of a curve beyond which it is smoothed
FEW = 20  # points of a curve that are marked
SMALL = 0.4  # shares that stay below are drawn larger
Settings = Sequence[SeedGroup[Run]]


def smoothing_window(charts: Sequence[Chart]) -> int:
    """Points of which each drawn one is the mean: enough that a long curve can be read."""
    longest = max((len(curve.points) for chart in charts for curve in chart.curves), default=0)
    return max(1, round(longest / POINTS))


def moving_average(values: Sequence[float], window: int) -> np.ndarray:
    """The mean of the last `window` values at each place: moving_average([1, 3, 5], 2) is [1, 2, 4]."""
    sums = np.convolve(values, np.ones(window))[: len(values)]
    means: np.ndarray = sums / np.minimum(np.arange(1, len(values) + 1), window)
    return means


def draw_curves(
    path: Path, charts: Sequence[Chart], settings: Settings, *, note: str, x_label: str, window: int
) -> None:
    """A pair of axes for each chart."""
    styles = _assign_styles(settings, [curve.label for chart in charts for curve in chart.curves])
    points = [point for chart in charts for point in chart.points]
    seeds = {point.seeds for point in points} - {1}
    count = " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else ""
    notes = {
        note: bool(note),
        f"band: standard deviation over {count} seeds": bool(seeds),
        "bars: 95 % interval over tasks": any(point.low is not None for point in points),
        f"lines: means of {window} points": window > 1,
    }
    with _open_figure(path, notes, len(charts), settings) as grid:
        for axes, chart in zip(grid, charts, strict=True):
            axes.set(title=chart.title, xlabel=x_label, ylabel=chart.unit)
            axes.locator_params(axis="x", integer=True, nbins=6)
            for curve in chart.curves:
                _draw_curve(axes, curve, window, chart.is_share, styles[curve.label])
            if chart.paper is not None:
                axes.axhline(chart.paper, color=DARK, linewidth=1, linestyle="--")
                axes.text(0, chart.paper, f"paper {chart.paper:.3f}", transform=axes.get_yaxis_transform(), va="bottom")
            _limit(axes, chart)
            _mark_stages(axes, chart)


def _assign_styles(settings: Settings, shown_labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of each label that is shown. A setting has one colour in all figures, whatever others they show."""
    labels = [setting.label for setting in settings]
    ordered = labels if set(shown_labels) <= set(labels) else list(dict.fromkeys(shown_labels))
    return {label: style for label, style in zip(ordered, STYLES(), strict=False) if label in shown_labels}


@contextmanager
def _open_figure(
    path: Path, notes: Mapping[str, bool], count: int, settings: Settings, size: tuple[float, float] = SIZE
) -> Iterator[list[Axes]]:
    """So many pairs of axes, of `size` each, which are then written with the figure's question above and notes below.

    notes: and whether each holds.
    """
    columns = 2 if count == 4 else min(count, 3)
    rows = -(-count // columns)
    with rc_context(LOOK):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows + 0.5), layout="constrained")
        yield [figure.add_subplot(rows, columns, place) for place in range(1, count + 1)]
        figure.suptitle(FIGURES[path.stem].question, x=0.01, ha="left", fontsize=13, fontweight="bold", color=DARK)
        note = "; ".join(text for text, holds in notes.items() if holds)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=GREY)
        legends = [axes.get_legend_handles_labels() for axes in figure.axes]
        handles = {label: handle for legend in legends for handle, label in zip(*legend, strict=True)}
        if max(len(handles), len(settings)) > 1:
            figure.legend(handles.values(), handles.keys(), loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(path)


def _draw_curve(axes: Axes, curve: Curve, window: int, is_share: bool, style: Mapping[str, Any]) -> None:
    """A line for each stage: between two of them the environment or the prompt may change."""
    for stage in dict.fromkeys(point.stage for point in curve.points):
        points = [point for point in curve.points if point.stage == stage]
        steps = [point.x for point in points]
        means = moving_average([point.mean for point in points], window)
        spreads = moving_average([point.spread or 0.0 for point in points], window)
        marker = "o" if len(curve.points) <= FEW or len(points) == 1 else None
        axes.plot(steps, means, marker=marker, markersize=3.5, label=curve.label, **style)
        if spreads.any():
            bounds = (0, 1) if is_share else (-np.inf, np.inf)
            low, high = np.clip(means - spreads, *bounds), np.clip(means + spreads, *bounds)
            axes.fill_between(steps, low, high, color=style["color"], alpha=0.18, linewidth=0)
        ends = [(point.x, point.low, point.high) for point in points if point.low is not None]
        if ends:
            axes.vlines(*zip(*ends, strict=True), color=style["color"], alpha=0.5)


def _limit(axes: Axes, chart: Chart) -> None:
    """Counts and shares begin at 0; shares end at 1, unless all are small."""
    means = [point.mean for point in chart.points]
    high = axes.get_ylim()[1] if any(means) else 1.0
    if chart.is_share and high > SMALL:
        axes.set_ylim(-0.02, 1.02)
    elif min(means) >= 0:
        axes.set_ylim(-0.02 * high, high)


def _mark_stages(axes: Axes, chart: Chart) -> None:
    """Where a stage begins, if that is at the same step for all."""
    begins = [{point.stage: point.x for point in reversed(curve.points)} for curve in chart.curves]
    if len(begins[0]) > 1 and all(begin == begins[0] for begin in begins):
        for stage, x in begins[0].items():
            axes.axvline(x, color=PALE, zorder=0)
            axes.text(x, 1, stage, transform=axes.get_xaxis_transform(), va="top", color=GREY)


def draw_entries(path: Path, entries: Sequence[Entry], settings: Settings) -> None:
    """A row for each number: each setting as a dot with its spread or interval, a paper's as a diamond."""
    keys, styles = (
        list(dict.fromkeys(entry.key for entry in entries)),
        _assign_styles(settings, [entry.label for entry in entries]),
    )
    title = (settings[0].runs[0].config.get("about") or {}).get("title") or ""
    notes = {
        "last evaluations": True,
        "bars: standard deviation over seeds": any(entry.spread is not None for entry in entries),
        "bars of a single run: 95 % interval over tasks": any(entry.low is not None for entry in entries),
        title: bool(title),
    }
    size = (7.5, 0.75 + 0.17 * len(keys) * max(2, len(styles)))
    within = np.linspace(-0.4, 0.4, len(styles) + 2)[1:-1]  # of a row, where each setting stands
    with _open_figure(path, notes, 1, settings, size) as (axes,):
        for (label, style), offset in zip(styles.items(), within, strict=True):
            dots = [entry for entry in entries if entry.label == label]
            rows = np.array([keys.index(dot.key) for dot in dots]) + offset
            reach = np.transpose([_error_bar(dot) for dot in dots])
            axes.errorbar([dot.value for dot in dots], rows, xerr=reach, fmt="o", color=style["color"], label=label)
            if any(dot.paper is not None for dot in dots):
                papers = [np.nan if dot.paper is None else dot.paper for dot in dots]
                axes.plot(papers, rows, "D", color=DARK, markersize=5, label="paper", zorder=1)
        axes.set_yticks(range(len(keys)), [key.replace("/", " ") for key in keys])
        axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.grid(axis="x")


def _error_bar(entry: Entry) -> tuple[float, float]:
    """Of its bar, below and above it."""
    if entry.low is not None and entry.high is not None:
        return max(0.0, entry.value - entry.low), max(0.0, entry.high - entry.value)
    return entry.spread or 0.0, entry.spread or 0.0


def draw_scatters(path: Path, scatters: Sequence[Scatter], settings: Settings) -> None:
    styles = _assign_styles(settings, [label for scatter in scatters for label, _, _ in scatter.points])
    notes = {"r: Pearson, with its 95 % band": True}
    with _open_figure(path, notes, len(scatters), settings) as grid:
        for axes, scatter in zip(grid, scatters, strict=True):
            correlation = scatter.correlation
            title = f"{scatter.title}: r = {correlation.r:.3f} ({correlation.low:.2f} to {correlation.high:.2f})"
            axes.set(title=title, xlabel="mean reward", ylabel="accuracy")
            axes.grid(axis="x")
            for label, reward, accuracy in scatter.points:
                axes.plot(reward, accuracy, "o", color=styles[label]["color"], alpha=0.8, label=label)
