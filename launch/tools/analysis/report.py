"""From settings to files: which rows a figure reads, then its picture, its numbers and its lines for the terminal."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.driver.observe.progress import Bar
from launch.run_dir.runs import Measurement, Run
from launch.run_dir.settings import SeedGroup
from launch.tools.analysis.curves import By, Chart, Curve, add_derived, any_calls, average_finish, build_charts
from launch.tools.analysis.draw import draw_curves, draw_entries, draw_scatters, smoothing_window
from launch.tools.analysis.episodes import TRAINING, average_episodes, find_files
from launch.tools.analysis.figures import FIGURES, PANELS
from launch.tools.analysis.results import Entry, Scatter, collect_results, common_paper_figures, correlate_rewards
from rlsys.files import replace_file

ABSENT, FLAT = "no numbers for", "0 throughout"  # why a figure is left out
LAST = 10  # rows of a stage whose mean says with which message its episodes end


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    folder: Path
    figures: Sequence[str]
    explicit: bool  # they were named: also those of texts that hold none of what is counted
    by: By
    episodes: str  # training, or a play of the evaluations
    smooth: int | None


def make_figures(settings: Sequence[SeedGroup[Run]], request: Request) -> dict[str, list[str] | str]:
    """Write the files. Of each figure its lines, or why it is left out."""
    runs = [run for setting in settings for run in setting.runs]
    sources, training = {FIGURES[name].source for name in request.figures}, request.episodes == TRAINING
    needs_texts = "episodes" in sources or ("finish" in sources and not training)
    texts = _average_episode_files(runs, request.episodes) if needs_texts else {}
    calling, last = any_calls(runs), LAST if training else 1
    rows_of: Mapping[str, Callable[[Run], Sequence[Measurement]]] = {
        "rows": lambda run: add_derived(run.rows, calling),
        "evaluations": lambda run: run.evaluations,
        "episodes": lambda run: texts[run],
        "finish": lambda run: average_finish(run.rows if training else texts[run], request.by, last),
    }
    lines: dict[str, list[str] | str] = {}
    with Bar() as show:
        for done, name in enumerate(request.figures, start=1):
            if name in COMPARED:
                lines[name] = _make_comparison(name, settings, request)
            else:
                lines[name] = _make_curves(name, settings, request, rows_of[FIGURES[name].source])
            show("figures", done, len(request.figures))
    return lines


def _average_episode_files(runs: Sequence[Run], episodes: str) -> dict[Run, list[Measurement]]:
    """The means of each file of episodes. episodes: those of training, or the play of evaluations that is named."""
    files = [(run, row, path) for run in runs for row, path in find_files(run, episodes)]
    measurements: dict[Run, list[Measurement]] = {run: [] for run in runs}
    with Bar() as show:
        for done, (run, row, path) in enumerate(files, start=1):
            measurements[run].append(average_episodes(row, path))
            show("files of episodes", done, len(files))
    return measurements


def _make_comparison(name: str, settings: Sequence[SeedGroup[Run]], request: Request) -> list[str] | str:
    collect, draw, report = COMPARED[name]
    comparison = collect(settings)
    if not comparison:
        return ABSENT
    draw(request.folder / f"{name}.png", comparison, settings)
    return report(request.folder, name, comparison)


def _make_curves(
    name: str, settings: Sequence[SeedGroup[Run]], request: Request, rows_of: Callable[[Run], Sequence[Measurement]]
) -> list[str] | str:
    source, of = FIGURES[name].source, f"{request.episodes} episodes"
    papers = common_paper_figures(settings)
    charts = build_charts(PANELS[name], settings, rows_of, request.by, papers, every=request.explicit)
    if source == "evaluations":  # what was evaluated once is a result and no curve
        charts = [chart for chart in charts if any(len(curve.points) > 1 for curve in chart.curves)]
    selected = charts
    if source == "episodes" and not request.explicit:
        selected = [chart for chart in charts if any(point.mean for point in chart.points)]
    if not selected:
        return FLAT if charts else ABSENT
    last = f"mean of the last {LAST} steps" if request.episodes == TRAINING else f"of the last {of}"
    note = {"finish": last, "episodes": f"of {of}"}.get(source, "")
    x_label = "message of the model" if source == "finish" else "step" if request.by == "step" else "step of the stage"
    window = 1 if source in ("finish", "evaluations") else request.smooth or smoothing_window(selected)
    draw_curves(request.folder / f"{name}.png", selected, settings, note=note, x_label=x_label, window=window)
    return report_curves(request.folder, name, x_label, selected)


# -- numbers -----------------------------------------------------------------------------------------------------------


def report_curves(folder: Path, name: str, x_label: str, charts: Sequence[Chart]) -> list[str]:
    """NAME.json with the runs by themselves, NAME.csv with a line for each point; nothing in them is smoothed.

    Returns a line for each curve: its begin and its end, which are the means of the first and the last tenth.
    """
    curves = [(chart.key, curve) for chart in charts for curve in chart.curves]
    rows = [{"key": key, "label": curve.label, **asdict(point)} for key, curve in curves for point in curve.points]
    _write(folder, name, {"x": x_label, "charts": [asdict(chart) for chart in charts]}, rows)
    lines = [name]
    wide = max(len(curve.label) for _, curve in curves)
    for chart in charts:
        title, paper = chart.title, "" if chart.paper is None else f"   paper {chart.paper:.3f}"
        for curve in chart.curves:
            begin, end, points = _describe_ends(curve)
            lines.append(f"  {_shorten(title)}  {curve.label:<{wide}} {begin:>9} -> {end:<18} {points}{paper}")
            title = paper = ""
    return lines


def _describe_ends(curve: Curve) -> tuple[str, str, str]:
    tenth, points = max(1, len(curve.points) // 10), f"{len(curve.points)} points"
    begin, end = (_format_mean([point.mean for point in cut]) for cut in (curve.points[:tenth], curve.points[-tenth:]))
    if spreads := [point.spread for point in curve.points[-tenth:] if point.spread is not None]:
        return begin, f"{end} ± {_format_mean(spreads)}", f"{points}, {curve.points[-1].seeds} seeds"
    return begin, end, points


def _format_mean(values: Sequence[float]) -> str:
    return _format_number(math.fsum(values) / len(values))


def report_entries(folder: Path, name: str, entries: Sequence[Entry]) -> list[str]:
    rows = [asdict(entry) for entry in entries]
    _write(folder, name, {"entries": rows}, rows)
    lines = [name]
    wide = max(len(entry.label) for entry in entries)
    for entry in entries:
        value, seeds = _format_number(entry.value), ""
        if entry.spread is not None:
            value, seeds = f"{value} ± {_format_number(entry.spread)}", f"   {entry.seeds} seeds"
        if entry.low is not None and entry.high is not None:
            value += f" ({_format_number(entry.low)} to {_format_number(entry.high)})"
        ref = "" if entry.paper is None else f"   paper {_format_number(entry.paper)}, {entry.value - entry.paper:+.3f}"
        lines.append(f"  {_shorten(entry.key)}  {entry.label:<{wide}} {value:<24}{seeds}{ref}".rstrip())
    return lines


def report_scatters(folder: Path, name: str, scatters: Sequence[Scatter]) -> list[str]:
    head = ("title", "label", "mean_reward", "accuracy")
    rows = [dict(zip(head, (scatter.title, *point), strict=True)) for scatter in scatters for point in scatter.points]
    _write(folder, name, {"scatters": [asdict(scatter) for scatter in scatters]}, rows)
    fits = [(_shorten(scatter.title), scatter.correlation) for scatter in scatters]
    return [name, *(f"  {title}  r = {r.r:.3f} ({r.low:.3f} to {r.high:.3f}), {r.count} points" for title, r in fits)]


def _write(folder: Path, name: str, content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    header = {"question": FIGURES[name].question, "papers": FIGURES[name].papers}
    replace_file(folder / f"{name}.json", json.dumps({**header, **content}, indent=1, ensure_ascii=False) + "\n")
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")  # nothing is an empty cell
    lines.writeheader()
    lines.writerows(rows)
    replace_file(folder / f"{name}.csv", text.getvalue())


def _format_number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"


def _shorten(text: str, width: int = 38) -> str:
    return f"{text if len(text) <= width else f'{text[: width - 1]}…':<{width}}"


COMPARED: Mapping[str, tuple[Callable[..., Sequence[Any]], Callable[..., None], Callable[..., list[str]]]] = {
    "results": (collect_results, draw_entries, report_entries),
    "correlation": (correlate_rewards, draw_scatters, report_scatters),
}
