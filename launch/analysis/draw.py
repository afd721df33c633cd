"""Charts as PNG. Colours are Okabe and Ito's, which colour-blind people tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.analysis.curves import Chart, Curve, Point
from launch.analysis.results import Entry, Scatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#999933")
STYLES = ("-", "--", "-.", ":")  # once the colours are used up
DARK, GREY, PALE = "#222222", "#777777", "#E4E4E4"
COLUMNS = 3
WIDE, HIGH = 4.6, 3.1  # inches of one pair of axes
POINTS = 60  # of a curve beyond which it is smoothed
DPI = 130
BELOW = 0.3  # inches of the note
DIRECT, SHORT = 6, 30  # curves of a single pair of axes, of such names, that are named at their ends
FEW = 20  # points of a curve that are marked
SMALL = 0.4  # shares that stay below are drawn larger


def window_of(charts: Sequence[Chart], smooth: int | None) -> int:
    """Points of which each drawn one is the mean: as asked, else enough that a long curve can be read."""
    if smooth is not None:
        return smooth
    longest = max((len(curve.points) for chart in charts for curve in chart.curves), default=0)
    return max(1, round(longest / POINTS))


def draw(
    path: Path, question: str, note: str, charts: Sequence[Chart], *, x_label: str, window: int, settings: Sequence[str]
) -> None:
    """One figure: a question, and a pair of axes for each chart. note: in small letters below.

    settings: all of them, so that each has one colour in all figures.
    """
    columns = min(len(charts), COLUMNS if len(charts) != 4 else 2)
    rows = -(-len(charts) // columns)
    found = {curve.label for chart in charts for curve in chart.curves}
    order = list(settings) if found <= set(settings) else list(_labels(charts))
    styles = {label: style_of(place) for place, label in enumerate(order)}
    labels = [label for label in order if label in found] if len(order) > 1 else []
    direct = len(charts) == 1 and len(labels) <= DIRECT and all(len(label) <= SHORT for label in labels)
    told = [] if direct else labels
    wide = WIDE * columns + 0.9 * (columns == 1)
    top = 0.42 + (0.21 * -(-len(told) // _abreast(told, wide)) if told else 0)
    figure = _figure(wide, HIGH * rows + BELOW + top, top)
    for place, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, place + 1)
        _frame(axes, chart, x_label if place >= len(charts) - columns else "")
        for curve in chart.curves:
            _curve(axes, curve, window, chart.share, *styles[curve.label])
        if chart.paper is not None:
            axes.axhline(chart.paper, color=DARK, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(f"paper {chart.paper:.3f}", (0.99, chart.paper), xycoords=("axes fraction", "data"),
                          ha="right", va="bottom", fontsize=8, color=DARK)  # fmt: skip
        _limits(axes, chart)
        _stages(axes, chart)
    if direct and labels:
        _label_ends(axes, charts[0].curves, window, styles)
    means = f"lines: means of {window} points" if window > 1 else ""
    said = "; ".join(each for each in (note, _band(charts), means) if each)
    _words(figure, question, said, told, [_stroke(*styles[label]) for label in told])
    figure.savefig(path, dpi=DPI)


def _band(charts: Sequence[Chart]) -> str:
    seeds = {point.seeds for chart in charts for curve in chart.curves for point in curve.points if point.seeds > 1}
    count = " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else ""
    bars = any(point.low is not None for chart in charts for curve in chart.curves for point in curve.points)
    said = [f"band: standard deviation over {count} seeds"] * bool(seeds) + ["bars: 95 % interval over tasks"] * bars
    return "; ".join(said)


def style_of(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], STYLES[place // len(COLOURS) % len(STYLES)]


def _figure(wide: float, high: float, top: float) -> Any:
    """top: inches that title and legend take."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    matplotlib.rcParams["text.parse_math"] = False  # a name with two $ is a name
    inside = (0.005, BELOW / high, 0.99, 1 - (BELOW + top) / high)
    figure = Figure(figsize=(wide, high), facecolor="white", layout=ConstrainedLayoutEngine(rect=inside, hspace=0.06))
    FigureCanvasAgg(figure)
    return figure


def _words(figure: Any, question: str, note: str, labels: Sequence[str], handles: Sequence[Any]) -> None:
    """Title, legend and note, at fixed distances from the edges."""
    wide, high = figure.get_size_inches()
    figure.text(0.12 / wide, 1 - 0.1 / high, question, fontsize=13, fontweight="bold", color=DARK, va="top")
    figure.text(0.12 / wide, 0.08 / high, note, fontsize=7.5, color=GREY, va="bottom")
    if labels:
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.06 / wide, 1 - 0.36 / high), fontsize=9,
                      ncols=_abreast(labels, wide), frameon=False, borderaxespad=0, columnspacing=1.4)  # fmt: skip


def _abreast(labels: Sequence[str], wide: float) -> int:
    """Columns of the legend."""
    return max(1, min(len(labels), int(wide / (max(map(len, labels)) * 0.085 + 0.55))))


def _frame(axes: Axes, chart: Chart, x_label: str, *, whole: bool = True) -> None:
    """whole: x counts something."""
    axes.set_title(chart.title, fontsize=10, color=DARK, loc="left")
    axes.set_ylabel(chart.unit, fontsize=8.5, color=GREY)
    axes.set_xlabel(x_label, fontsize=8.5, color=GREY)
    axes.tick_params(labelsize=8, colors=GREY, length=0)
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.locator_params(axis="x", integer=whole, nbins=6)
    axes.locator_params(axis="y", nbins=5)


def _curve(axes: Axes, curve: Curve, window: int, share: bool, colour: str, style: str) -> None:
    """A line for each stage: between two of them the environment or the prompt may change."""
    for stage in dict.fromkeys(point.stage for point in curve.points):
        points = [point for point in curve.points if point.stage == stage]
        xs, means = [point.x for point in points], smoothed([point.mean for point in points], window)
        few = len(curve.points) <= FEW or len(points) == 1
        mark: dict[str, Any] = {"marker": "o", "markersize": 3.5} if few else {}
        axes.plot(xs, means, color=colour, linestyle=style, linewidth=1.9, **mark)
        spreads = smoothed([point.spread or 0.0 for point in points], window)
        if any(spreads):
            least, most = (0.0, 1.0) if share else (-math.inf, math.inf)
            low = [max(mean - spread, least) for mean, spread in zip(means, spreads, strict=True)]
            high = [min(mean + spread, most) for mean, spread in zip(means, spreads, strict=True)]
            axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)
        for point in points:
            if point.low is not None and point.high is not None:
                axes.vlines(point.x, point.low, point.high, color=colour, alpha=0.5, linewidth=1.2)


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """The mean of the last `window` values at each place: smoothed([1, 3, 5], 2) is [1, 2, 4]."""
    spans = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [math.fsum(span) / len(span) for span in spans]


def _limits(axes: Axes, chart: Chart) -> None:
    """Counts and shares begin at 0; shares end at 1, unless all are small."""
    low, high = axes.get_ylim()
    values = [point.mean for curve in chart.curves for point in curve.points]
    if chart.share and high > SMALL:
        axes.set_ylim(-0.02, 1.02)
    elif min(values) >= 0:
        axes.set_ylim(-0.02 * high, high) if max(values) > 0 else axes.set_ylim(-0.02, 1)


def _labels(charts: Sequence[Chart]) -> dict[str, None]:
    return dict.fromkeys(curve.label for chart in charts for curve in chart.curves)


def _label_ends(axes: Axes, curves: Sequence[Curve], window: int, styles: Mapping[str, tuple[str, str]]) -> None:
    """Labels behind the ends of the curves, moved apart where they would touch."""
    low, high = axes.get_ylim()
    apart = (high - low) * 0.07
    ends = sorted(
        (smoothed([point.mean for point in curve.points], window)[-1], place) for place, curve in enumerate(curves)
    )
    at = low
    for end, place in ends:
        at = max(end, at)
        label, colour = curves[place].label, styles[curves[place].label][0]
        axes.annotate(label, (1.01, at), xycoords=("axes fraction", "data"), va="center", fontsize=9, color=colour,
                      annotation_clip=False)  # fmt: skip
        at += apart


def _stages(axes: Axes, chart: Chart) -> None:
    """Where a stage begins, if that is at the same step for all."""
    begins = [_begins(curve.points) for curve in chart.curves]
    if len(begins[0]) > 1 and all(each == begins[0] for each in begins):
        for stage, x in begins[0].items():
            axes.axvline(x, color=PALE, linewidth=1, zorder=0)
            axes.annotate(stage, (x, 1.0), xycoords=("data", "axes fraction"), xytext=(2, -2), fontsize=7.5,
                          textcoords="offset points", va="top", color=GREY)  # fmt: skip


def _begins(points: Sequence[Point]) -> dict[str, int]:
    found: dict[str, int] = {}
    for point in points:
        found.setdefault(point.stage, point.x)
    return found


# -- comparisons -------------------------------------------------------------------------------------------------------


def draw_entries(path: Path, question: str, note: str, entries: Sequence[Entry]) -> None:
    """A row for each number: each setting as a dot with its spread or interval, a paper's as a diamond."""
    keys, labels = (list(dict.fromkeys(getattr(each, name) for each in entries)) for name in ("key", "label"))
    papers = any(each.paper is not None for each in entries)
    told = [*labels, "paper"] if papers else labels if len(labels) > 1 else []
    top = 0.42 + (0.21 * -(-len(told) // _abreast(told, 7.5)) if told else 0)
    figure = _figure(7.5, 0.34 * len(keys) * max(1, len(labels) / 2) + 0.75 + BELOW + top, top)
    axes = figure.add_subplot()
    for each in entries:
        place = keys.index(each.key) + (labels.index(each.label) - (len(labels) - 1) / 2) * 0.6 / len(labels)
        colour = style_of(labels.index(each.label))[0]
        if each.paper is not None:
            axes.plot([each.paper, each.value], [place, place], color=PALE, linewidth=2, zorder=1)
            axes.plot(each.paper, place, marker="D", color=DARK, markersize=5, zorder=2, linestyle="")
        axes.errorbar(each.value, place, xerr=_reach(each), fmt="o", color=colour, markersize=6, zorder=3)
    axes.set_yticks(range(len(keys)), [key.replace("/", " ") for key in keys], fontsize=9, color=DARK)
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=8, colors=GREY, length=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    handles = [_dot(style_of(place)[0], "o") for place in range(len(labels))] + [_dot(DARK, "D")]
    _words(figure, question, note, told, handles[: len(told)])
    figure.savefig(path, dpi=DPI)


def _reach(each: Entry) -> list[list[float]] | None:
    """What matplotlib calls xerr: below and above."""
    if each.spread is not None:
        return [[each.spread], [each.spread]]
    if each.low is None or each.high is None:
        return None
    return [[max(0.0, each.value - each.low)], [max(0.0, each.high - each.value)]]


def draw_scatters(path: Path, question: str, scatters: Sequence[Scatter]) -> None:
    columns = min(len(scatters), COLUMNS)
    rows = -(-len(scatters) // columns)
    labels = list(dict.fromkeys(label for each in scatters for label, _, _ in each.points))
    told, wide = labels if len(labels) > 1 else [], WIDE * columns + 0.9 * (columns == 1)
    top = 0.42 + (0.21 * -(-len(told) // _abreast(told, wide)) if told else 0)
    figure = _figure(wide, HIGH * rows + BELOW + top, top)
    for place, each in enumerate(scatters):
        axes = figure.add_subplot(rows, columns, place + 1)
        found = each.correlation
        said = f"r = {found.r:.3f} ({found.low:.2f} to {found.high:.2f})"
        _frame(
            axes, Chart(title=f"{each.title}: {said}", unit="accuracy", key="", curves=()), "mean reward", whole=False
        )
        axes.grid(axis="x", color=PALE, linewidth=0.8)
        for label, x, y in each.points:
            axes.plot(x, y, "o", color=style_of(labels.index(label))[0], markersize=5, alpha=0.8)
    handles = [_dot(style_of(place)[0], "o") for place in range(len(told))]
    _words(figure, question, "r: Pearson, with its 95 % band", told, handles)
    figure.savefig(path, dpi=DPI)


def _stroke(colour: str, style: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linestyle=style, linewidth=2.2)


def _dot(colour: str, marker: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker=marker, markersize=6, linestyle="")
