"""`rlsys analyse`: curves and tables of runs, as pictures and as numbers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from launch.run_dir.runs import Run, list_plays, read_run
from launch.run_dir.settings import group_runs
from launch.tools.analysis.episodes import TRAINING
from launch.tools.analysis.figures import FIGURES, select_keys
from launch.tools.analysis.report import ABSENT, FLAT, Request, make_figures
from rlsys.errors import BadInput, nearest
from rlsys.files import files_or_bad_input

HELP = "draw curves and tables of runs, as pictures and numbers: one figure per question, seeds as a band"
EXAMPLES = """examples:
  rlsys analyse runs/q                                      all figures, into runs/q/analysis/
  rlsys analyse runs/q-1 runs/q-2 runs/r-1 runs/r-2         q and r in the same figures, seeds as bands
  rlsys analyse runs/* --figures reward,length --output pictures
  rlsys analyse runs/icrl --by stage --figures finish,valid     stages in the same figure, each from its step 0
  rlsys analyse a b c --labels cosine,cosine,classic        your own labels, one per run; seeds share a label
  rlsys analyse runs/base --figures keywords,coding --episodes math500/greedy     of an evaluation, not of training

NAME.csv and NAME.json hold the numbers of NAME.png. A run may still be in progress. docs/analyse.md lists the figures.
"""


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_dirs", metavar="RUN_DIR", nargs="+", type=Path, help="run directory of rlsys train")
    command.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="folder to write (default: RUN_DIR/analysis; for several runs ./analysis)",
    )
    command.add_argument("--figures", metavar="A,B", help="figures to draw (default: all that the runs have data for)")
    command.add_argument("--by", choices=("step", "stage"), default="step", help="x axis (default: %(default)s)")
    command.add_argument("--labels", metavar="A,B", help="one label per RUN_DIR; runs with the same label form a band")
    command.add_argument(
        "--episodes",
        metavar="PLAY",
        default="training",
        help="episodes whose texts and messages are counted: training, greedy, SET/greedy",
    )
    command.add_argument(
        "--smooth",
        metavar="N",
        type=int,
        help="number of points in the moving average of the pictures (default: by the length of the run)",
    )


def run(options: argparse.Namespace) -> int:
    names = _select_names(options.figures, list(FIGURES))
    if options.smooth is not None and options.smooth < 1:
        raise BadInput(key="--smooth", found=options.smooth, expected="1 or more")
    runs = [read_run(path, select_keys(names)) for path in options.run_dirs]
    _check_plays(options, runs)
    folder = options.output or (runs[0].path / "analysis" if len(runs) == 1 else Path("analysis"))
    request = Request(
        folder=folder,
        figures=names,
        explicit=options.figures is not None,
        by=options.by,
        episodes=options.episodes,
        smooth=options.smooth,
    )
    with files_or_bad_input():
        folder.mkdir(parents=True, exist_ok=True)
        figures = make_figures(group_runs(runs, _words(options.labels)), request)
    skipped = {reason: [name for name, lines in figures.items() if lines == reason] for reason in (FLAT, ABSENT)}
    if len(skipped[ABSENT]) == len(names):
        raise BadInput(f"{ABSENT} {', '.join(names)}", where=", ".join(map(str, options.run_dirs)))
    summary = [line for lines in figures.values() if not isinstance(lines, str) for line in lines]
    summary += [f"{reason}: {', '.join(names)}" for reason, names in skipped.items() if names]
    print("\n".join([*summary, f"written to {folder}/"]))
    return 0


def _select_names(text: str | None, choices: list[str]) -> list[str]:
    names = list(dict.fromkeys(_words(text))) or choices
    for name in names:
        if name not in choices:
            raise BadInput(f"no figure {name!r}{nearest(name, choices)}", key="--figures")
    return names


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _check_plays(options: argparse.Namespace, runs: Sequence[Run]) -> None:
    plays = dict.fromkeys(play for run in runs for play in list_plays(run.evaluations))
    hint = f"(known: {', '.join(plays) or 'none'})"
    if options.episodes != TRAINING and options.episodes not in plays:
        raise BadInput(key="--episodes", found=options.episodes, expected=f"training, or a play of these runs {hint}")
