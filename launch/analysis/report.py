"""What was drawn, as numbers: JSON and CSV beside each picture, and lines for the terminal."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launch.analysis.curves import Chart, Curve
from launch.analysis.figures import Figure
from launch.analysis.results import Entry, Scatter
from rlsys.files import replace_file


def write(folder: Path, name: str, figure: Figure, x_label: str, charts: Sequence[Chart]) -> None:
    """NAME.json with the runs by themselves, NAME.csv with a line for each point. Nothing in them is smoothed."""
    rows = [
        {"key": chart.key, "label": curve.label, **asdict(point)}
        for chart in charts
        for curve in chart.curves
        for point in curve.points
    ]
    _write(folder, name, figure, {"x": x_label, "charts": [asdict(chart) for chart in charts]}, rows)


def write_entries(folder: Path, name: str, figure: Figure, entries: Sequence[Entry]) -> None:
    found = [asdict(each) for each in entries]
    _write(folder, name, figure, {"entries": found}, found)


def write_scatters(folder: Path, name: str, figure: Figure, scatters: Sequence[Scatter]) -> None:
    rows = [
        {"title": each.title, "label": label, "mean_reward": reward, "accuracy": accuracy}
        for each in scatters
        for label, reward, accuracy in each.points
    ]
    _write(folder, name, figure, {"scatters": [asdict(each) for each in scatters]}, rows)


def _write(
    folder: Path, name: str, figure: Figure, content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    about = {"question": figure.question, "papers": figure.papers}
    replace_file(folder / f"{name}.json", json.dumps({**about, **content}, indent=1, ensure_ascii=False) + "\n")
    text = io.StringIO()
    lines = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")  # nothing is an empty cell
    lines.writeheader()
    lines.writerows(rows)
    replace_file(folder / f"{name}.csv", text.getvalue())


def table(name: str, charts: Sequence[Chart]) -> list[str]:
    """A line for each curve: its begin and its end, which are the means of the first and the last tenth."""
    lines = [f"{name}"]
    wide = max(len(curve.label) for chart in charts for curve in chart.curves)
    for chart in charts:
        for place, curve in enumerate(chart.curves):
            title = _cut(chart.title, 38) if place == 0 else ""
            begin, end, spread = _ends(curve)
            paper = "" if chart.paper is None or place else f"   paper {chart.paper:.3f}"
            around = "" if spread is None else f" ± {_shown(spread)}"
            points = f"{len(curve.points)} points" + (f", {curve.points[-1].seeds} seeds" if spread is not None else "")
            lines.append(
                f"  {title:<38}  {curve.label:<{wide}} {_shown(begin):>9} -> {_shown(end) + around:<18} {points}{paper}"
            )
    return lines


def _ends(curve: Curve) -> tuple[float, float, float | None]:
    tenth = max(1, len(curve.points) // 10)
    first, last = ([point.mean for point in part] for part in (curve.points[:tenth], curve.points[-tenth:]))
    spreads = [point.spread for point in curve.points[-tenth:] if point.spread is not None]
    spread = math.fsum(spreads) / len(spreads) if spreads else None
    return math.fsum(first) / tenth, math.fsum(last) / tenth, spread


def _shown(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def entry_table(name: str, entries: Sequence[Entry]) -> list[str]:
    lines = [name]
    wide = max(len(each.label) for each in entries)
    for each in entries:
        around = "" if each.spread is None else f" ± {_shown(each.spread)}"
        if each.low is not None and each.high is not None:
            around = f" ({_shown(each.low)} to {_shown(each.high)})"
        seeds = "" if each.spread is None else f"   {each.seeds} seeds"
        paper = "" if each.paper is None else f"   paper {_shown(each.paper)}, {each.value - each.paper:+.3f}"
        lines.append(
            f"  {_cut(each.key, 38):<38}  {each.label:<{wide}} {_shown(each.value) + around:<24}{seeds}{paper}".rstrip()
        )
    return lines


def scatter_table(name: str, scatters: Sequence[Scatter]) -> list[str]:
    found = [(each, each.correlation) for each in scatters]
    said = [
        f"  {_cut(each.title, 38):<38}  r = {r.r:.3f} ({r.low:.3f} to {r.high:.3f}), {r.count} points"
        for each, r in found
    ]
    return [name, *said]
