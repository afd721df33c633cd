"""Runs of `rlsys train` that are compared with one another: one after the other, and what is done is not run again."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

Found = dict[str, Any]  # of each run, by its name


def add_options(
    parser: argparse.ArgumentParser, results: Path, *, seeds: int = 2, kept: str = "draw"
) -> argparse.ArgumentParser:
    """Those of a study whose numbers stand in `results`: with `--draw`, or what else it is called, as they stand."""
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / results.stem.replace("_", "-"))
    text = f"train nothing, take what {results.relative_to(ROOT)} holds"
    parser.add_argument(f"--{kept}", dest="kept", action="store_true", help=text)
    return parser


def measured(options: argparse.Namespace, results: Path, play: Callable[[int, Path], Found]) -> tuple[Found, int]:
    """(what `play` finds of each run, seeds), which then stand in `results`."""
    if not options.kept:
        runs = play(options.seeds, options.runs)
        results.write_text(json.dumps({"seeds": options.seeds, "runs": runs}, indent=1) + "\n")
    kept = json.loads(results.read_text())
    return kept["runs"], kept["seeds"]


@contextmanager
def picture(path: Path, title: str, note: str, columns: int = 2, **how: Any) -> Iterator[list[Any]]:
    """Pairs of axes in the look of `rlsys analyse`; then the file, the same one for the same numbers.

    how: of matplotlib's `subplots`. Whatever has a label stands in a legend below the axes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from launch.analysis.draw import DARK, GREY, LOOK

    with rc_context(LOOK | {"svg.hashsalt": "rlsys", "svg.fonttype": "path"}):
        figure = Figure(figsize=(4 * columns, 3.3), layout="constrained")
        axes = figure.subplots(1, columns, **how)
        yield list(axes)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=DARK)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=GREY)
        if (handles := axes[0].get_legend_handles_labels())[0]:
            figure.legend(*handles, loc="outside right center")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def train(config: str, folder: Path, changes: Sequence[str]) -> None:
    """Raises CalledProcessError where the run fails."""
    if summary(folder) is None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "launch", "train", config, "--run-dir", str(folder), *changes]
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})


def summary(folder: Path) -> dict[str, Any] | None:
    """None of a run that is not done."""
    path = folder / "summary.json"
    if not path.is_file() or (found := json.loads(path.read_text()))["status"] != "done":
        return None
    return dict(found)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Of a run's `evaluations` or `metrics`."""
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def answers(folder: Path, pattern: str) -> list[str]:
    """The last messages in the files of a run's `trajectories/` that are called so."""
    found = []
    for path in sorted((folder / "trajectories").glob(f"{pattern}.jsonl*")):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
            found += [json.loads(line)["messages"][-1]["content"] for line in lines]
    return found


def weights(folder: Path, step: int) -> Path:
    """What a run left after that step, for another to begin with."""
    return folder / "checkpoints" / f"step-{step:06d}" / "hf"


def spread(values: Sequence[float]) -> str:
    """The mean, with the smallest and the largest."""
    if max(values) >= 10:
        return f"{statistics.mean(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
    return f"{statistics.mean(values):.3f} ({min(values):.2f} to {max(values):.2f})"
