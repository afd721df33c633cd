"""From settings to files: which rows a figure reads, then its picture, its numbers and its lines for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.analysis.curves import LAST, By, Chart, add_derived, any_calls, charts, finished
from launch.analysis.draw import draw, draw_entries, draw_scatters, window_of
from launch.analysis.episodes import TRAINING, files_of, read_episodes
from launch.analysis.figures import FIGURES, Figure
from launch.analysis.report import entry_table, scatter_table, table, write, write_entries, write_scatters
from launch.analysis.results import papers_of_all, results, scatters
from launch.analysis.runs import Measurement, Run, SeedGroup
from launch.observe.bar import Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    folder: Path
    names: Sequence[str]  # of figures
    asked: bool  # for these by name: also for texts that hold none of what is counted
    by: By
    episodes: str  # training, or a play of the evaluations
    smooth: int | None


@dataclass(slots=True)
class SkippedFigures:
    """The figures that were not drawn."""

    absent: list[str]  # no run has numbers for them
    flat: list[str]  # of texts, 0 throughout


def make(settings: Sequence[SeedGroup], making: Making, say: Callable[[str], None]) -> SkippedFigures:
    """Write the figures and say their lines."""
    runs = [run for setting in settings for run in setting.runs]
    of = {"episodes"} if making.episodes == TRAINING else {"episodes", "finish"}
    counted = _counted(runs, making.episodes) if of & {FIGURES[name].source for name in making.names} else {}
    papers, calling = papers_of_all(settings), any_calls(runs)
    left = SkippedFigures([], [])
    for name in making.names:
        figure = FIGURES[name]
        if figure.source == "compared":
            lines = COMPARED[name](figure, settings, making.folder)
        else:
            found = {
                each: {run: _rows(figure, run, making, counted, calling) for run in each.runs} for each in settings
            }
            made = charts(figure, found, making.by, papers, every=making.asked)
            empty = figure.source == "episodes" and not making.asked
            shown = [chart for chart in made if not (empty and chart.flat)]
            if made and not shown:
                left.flat.append(name)
                continue
            labels = [each.label for each in settings]
            lines = _curves(name, figure, shown, making, labels) if shown else []
        if not lines:
            left.absent.append(name)
        for line in lines:
            say(line)
    return left


def _curves(name: str, figure: Figure, shown: Sequence[Chart], making: Making, labels: Sequence[str]) -> list[str]:
    x_label = _x_label(figure, making.by)
    training = making.episodes == TRAINING
    ends = f"mean of the last {LAST} steps" if training else f"of the last {making.episodes} episodes"
    notes = {"episodes": f"of {making.episodes} episodes", "finish": ends}
    window = 1 if figure.source in ("finish", "evaluations") else window_of(shown, making.smooth)
    write(making.folder, name, figure, x_label, shown)
    draw(
        making.folder / f"{name}.png",
        figure.question,
        notes.get(figure.source, ""),
        shown,
        x_label=x_label,
        window=window,
        settings=labels,
    )
    return table(name, shown)


def _results(figure: Figure, settings: Sequence[SeedGroup], folder: Path) -> list[str]:
    entries = results(settings)
    if not entries:
        return []
    about = settings[0].runs[0].config.get("about") or {}
    write_entries(folder, "results", figure, entries)
    seeds = ["standard deviation over seeds"] * any(each.spread is not None for each in entries)
    tasks = ["of a single run the 95 % interval over tasks"] * any(each.low is not None for each in entries)
    bars = f"bars: {', '.join([*seeds, *tasks])}" if seeds or tasks else ""
    note = "; ".join(word for word in ("last evaluations", bars, about.get("title")) if word)
    draw_entries(folder / "results.png", figure.question, note, entries)
    return entry_table("results", entries)


def _correlation(figure: Figure, settings: Sequence[SeedGroup], folder: Path) -> list[str]:
    found = scatters(settings)
    if not found:
        return []
    write_scatters(folder, "correlation", figure, found)
    draw_scatters(folder / "correlation.png", figure.question, found)
    return scatter_table("correlation", found)


COMPARED: Mapping[str, Callable[[Figure, Sequence[SeedGroup], Path], list[str]]] = {
    "results": _results,
    "correlation": _correlation,
}


def _counted(runs: Sequence[Run], episodes: str) -> dict[Path, list[Measurement]]:
    total, done = sum(len(files_of(run, episodes)) for run in runs), 0

    def told() -> None:
        nonlocal done
        done += 1
        show("files of episodes", done, total)

    with Bar() as show:
        return {run.path: list(read_episodes(run, episodes, told)) for run in runs}


def _rows(
    figure: Figure, run: Run, making: Making, counted: Mapping[Path, Sequence[Measurement]], calling: bool
) -> Sequence[Measurement]:
    if figure.source == "evaluations":
        return run.evaluations
    if figure.source == "episodes":
        return counted[run.path]
    if figure.source == "finish":
        key, training = figure.panels[0].key, making.episodes == TRAINING
        return finished(run.rows if training else counted[run.path], making.by, key, LAST if training else 1)
    return add_derived(run.rows, calling)


def _x_label(figure: Figure, by: By) -> str:
    if figure.source == "finish":
        return "message of the model"
    return "step" if by == "step" else "step of the stage"
