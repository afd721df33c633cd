"""Charts as PNG. Colours are Okabe and Ito's, which colour-blind people tell apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from launch.analysis.curves import Chart, Curve
from launch.analysis.results import Entry, Scatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#999933")
STYLES = ("-", "--", "-.", ":")  # once the colours are used up
DARK, GREY, PALE = "#222222", "#777777", "#E4E4E4"
LOOK = {
    "text.parse_math": False,  # a name with two $ is a name
    "savefig.dpi": 130,
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
COLUMNS = 3
SIZE = (4.6, 3.1)  # inches of one pair of axes
LETTER = 0.07  # inches of one of the legend
POINTS = 60  # of a curve beyond which it is smoothed
FEW = 20  # points of a curve that are marked
SMALL = 0.4  # shares that stay below are drawn larger


def window_of(charts: Sequence[Chart], window: int | None) -> int:
    """Points of which each drawn one is the mean: as asked, else enough that a long curve can be read."""
    if window is not None:
        return window
    longest = max((len(curve.points) for chart in charts for curve in chart.curves), default=0)
    return max(1, round(longest / POINTS))


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of the last `window` values at each place: moving_average([1, 3, 5], 2) is [1, 2, 4]."""
    spans = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [math.fsum(span) / len(span) for span in spans]


def draw(
    path: Path, question: str, note: str, charts: Sequence[Chart], *, x_label: str, window: int, settings: Sequence[str]
) -> None:
    """One figure: a question, and a pair of axes for each chart. note: in small letters below.

    settings: all of them, so that each has one colour in all figures.
    """
    found = list(dict.fromkeys(curve.label for chart in charts for curve in chart.curves))
    order = settings if set(found) <= set(settings) else found
    styles = {label: style_of(place) for place, label in enumerate(order)}
    means = f"lines: means of {window} points" if window > 1 else ""
    notes = "; ".join(each for each in (note, _bands(charts), means) if each)
    with _figure(path, question, notes, len(charts), labels=found if len(order) > 1 else ()) as grid:
        for axes, chart in zip(grid, charts, strict=True):
            axes.set_title(chart.title)
            axes.set_ylabel(chart.unit)
            axes.set_xlabel(x_label)
            axes.locator_params(axis="x", integer=True, nbins=6)
            for curve in chart.curves:
                _curve(axes, curve, window, chart.share, *styles[curve.label])
            if chart.paper is not None:
                axes.axhline(chart.paper, color=DARK, linewidth=1, linestyle="--")
                axes.annotate(f"paper {chart.paper:.3f}", (0, chart.paper), xycoords=("axes fraction", "data"))
            _limits(axes, chart)
            _stages(axes, chart)


def _bands(charts: Sequence[Chart]) -> str:
    """What stands around the curves."""
    points = [point for chart in charts for curve in chart.curves for point in curve.points]
    seeds = {point.seeds for point in points if point.seeds > 1}
    count = " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else ""
    found = [f"band: standard deviation over {count} seeds"] * bool(seeds)
    found += ["bars: 95 % interval over tasks"] * any(point.low is not None for point in points)
    return "; ".join(found)


def style_of(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], STYLES[place // len(COLOURS) % len(STYLES)]


@contextmanager
def _figure(
    path: Path, question: str, note: str, count: int, *, labels: Sequence[str], size: tuple[float, float] = SIZE
) -> Iterator[list[Axes]]:
    """So many pairs of axes, of `size` each, which are then written with a question above them and a note below.

    labels: those that a legend explains; none without one.
    """
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(count, COLUMNS if count != 4 else 2)
    rows = -(-count // columns)
    with matplotlib.rc_context(LOOK):
        beside = max((0.6 + LETTER * len(label) for label in labels), default=0)
        figure = Figure(figsize=(size[0] * columns + beside, size[1] * rows + 0.5), layout="constrained")
        grid = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
        yield grid
        figure.suptitle(question, x=0.01, ha="left", fontsize=13, fontweight="bold", color=DARK)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=GREY)
        if labels:
            named = [axes.get_legend_handles_labels() for axes in grid]
            handles = {label: handle for each in named for handle, label in zip(*each, strict=True)}
            figure.legend(handles.values(), handles.keys(), loc="outside right center")
        figure.savefig(path)


def _curve(axes: Axes, curve: Curve, window: int, share: bool, colour: str, style: str) -> None:
    """A line for each stage: between two of them the environment or the prompt may change."""
    for stage in dict.fromkeys(point.stage for point in curve.points):
        points = [point for point in curve.points if point.stage == stage]
        xs, means = [point.x for point in points], moving_average([point.mean for point in points], window)
        marker = "o" if len(curve.points) <= FEW or len(points) == 1 else None
        axes.plot(xs, means, color=colour, linestyle=style, marker=marker, markersize=3.5, label=curve.label)
        spreads = moving_average([point.spread or 0.0 for point in points], window)
        if any(spreads):
            least, most = (0.0, 1.0) if share else (-math.inf, math.inf)
            low = [max(mean - spread, least) for mean, spread in zip(means, spreads, strict=True)]
            high = [min(mean + spread, most) for mean, spread in zip(means, spreads, strict=True)]
            axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)
        for point in points:
            if point.low is not None and point.high is not None:
                axes.vlines(point.x, point.low, point.high, color=colour, alpha=0.5)


def _limits(axes: Axes, chart: Chart) -> None:
    """Counts and shares begin at 0; shares end at 1, unless all are small."""
    high = axes.get_ylim()[1]
    values = [point.mean for curve in chart.curves for point in curve.points]
    if chart.share and high > SMALL:
        axes.set_ylim(-0.02, 1.02)
    elif min(values) >= 0:
        axes.set_ylim(-0.02 * high, high) if max(values) > 0 else axes.set_ylim(-0.02, 1)


def _stages(axes: Axes, chart: Chart) -> None:
    """Where a stage begins, if that is at the same step for all."""
    begins = [{point.stage: point.x for point in reversed(curve.points)} for curve in chart.curves]
    if len(begins[0]) > 1 and all(each == begins[0] for each in begins):
        for stage, x in begins[0].items():
            axes.axvline(x, color=PALE, zorder=0)
            axes.annotate(stage, (x, 1), xycoords=("data", "axes fraction"), va="top", color=GREY)


# -- comparisons -------------------------------------------------------------------------------------------------------


def draw_entries(path: Path, question: str, note: str, entries: Sequence[Entry]) -> None:
    """A row for each number: each setting as a dot with its spread or interval, a paper's as a diamond."""
    keys, labels = (list(dict.fromkeys(getattr(each, name) for each in entries)) for name in ("key", "label"))
    named = [*labels, "paper"] if any(each.paper is not None for each in entries) else labels if len(labels) > 1 else ()
    high = 0.34 * len(keys) * max(1, len(labels) / 2) + 0.75
    with _figure(path, question, note, 1, labels=named, size=(7.5, high)) as (axes,):
        for each in entries:
            place = keys.index(each.key) + (labels.index(each.label) - (len(labels) - 1) / 2) * 0.6 / len(labels)
            if each.paper is not None:
                axes.plot(each.paper, place, marker="D", color=DARK, markersize=5, linestyle="", label="paper")
            colour = style_of(labels.index(each.label))[0]
            axes.errorbar(each.value, place, xerr=_reach(each), fmt="o", color=colour, label=each.label)
        axes.set_yticks(range(len(keys)), [key.replace("/", " ") for key in keys])
        axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.grid(axis="x")


def _reach(each: Entry) -> list[list[float]] | None:
    """What matplotlib calls xerr: below and above."""
    if each.spread is not None:
        return [[each.spread], [each.spread]]
    if each.low is None or each.high is None:
        return None
    return [[max(0.0, each.value - each.low)], [max(0.0, each.high - each.value)]]


def draw_scatters(path: Path, question: str, scatters: Sequence[Scatter]) -> None:
    labels = list(dict.fromkeys(label for each in scatters for label, _, _ in each.points))
    note = "r: Pearson, with its 95 % band"
    with _figure(path, question, note, len(scatters), labels=labels if len(labels) > 1 else ()) as grid:
        for axes, each in zip(grid, scatters, strict=True):
            found = each.correlation
            axes.set_title(f"{each.title}: r = {found.r:.3f} ({found.low:.2f} to {found.high:.2f})")
            axes.set_xlabel("mean reward")
            axes.set_ylabel("accuracy")
            axes.grid(axis="x")
            for label, x, y in each.points:
                axes.plot(x, y, "o", color=style_of(labels.index(label))[0], alpha=0.8, label=label)
