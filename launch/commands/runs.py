"""`rlsys runs`: the runs below a folder, one a line: how each stands, what it reached, how old and how large it is."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launch.driver.observe.progress import duration
from launch.run_dir.listing import ListedRun, list_runs
from rlsys.errors import BadInput
from rlsys.untrusted import visible

HELP = "list runs: state, step, result, age and size of each"
EXAMPLES = """examples:
  rlsys runs                                      those below runs/
  rlsys runs /shared/runs --json                  one object a run, for programs
"""
WIDE = 140  # of a list that goes into a file
TITLES = ("run", "state", "recipe", "step", "result", "age", "size")
NUMBERS = ("step", "age", "size")  # to the right
RANKS = ("run", "state", "step", "result", "age", "size", "recipe")  # where there is no room, the last goes first


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="a folder of runs (default: runs)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    folder, now = Path(options.folder), time.time()
    if not folder.is_dir():
        raise BadInput("no such folder", key="DIR", found=options.folder, expected="one with run directories")
    runs = list_runs(folder)
    if options.json:
        for run in runs:
            print(json.dumps(as_json(run, now)))
        return 0
    if not runs:
        print(f"no runs below {visible(str(folder))}")
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
    rows = [cells(listed, folder, now) for listed in runs]
    for line in table(rows, width):
        print(line)
    for run in runs:
        if run.problem:
            print(f"{visible(str(run.path))}: {run.problem}")
    return 0


def cells(run: ListedRun, folder: Path, now: float) -> dict[str, str]:
    name = run.path.relative_to(folder) if run.path != folder else run.path.absolute().name
    return {
        "run": visible(str(name)),
        "state": run.state or "unreadable",
        "recipe": run.recipe + (f" seed {run.seed}" if run.seed is not None else ""),
        "step": f"{run.step}/{run.steps}" if run.steps else str(run.step),
        "result": describe_result(run),
        "age": age(now - run.active),
        "size": in_bytes(run.size),
    }


def describe_result(run: ListedRun) -> str:
    """ "greedy/accuracy 0.930 (+0.210)"."""
    result = run.result
    if result is None:
        return ""
    change = "" if result.first is None else f" ({result.value - result.first:+.3f})"
    return f"{visible(result.name)[:40]} {result.value:.3f}{change}"


def age(seconds: float) -> str:
    """Since its last sign: "0:42", "3:05:10", "12 days"."""
    days = int(seconds // 86400)
    return f"{days} days" if days > 1 else duration(seconds)


def in_bytes(size: int) -> str:
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def table(rows: Sequence[dict[str, str]], width: int) -> list[str]:
    """Under titles, and without the columns for which there is no room; a long name is kept whole."""
    titles = list(TITLES)
    for last in reversed(RANKS):
        widths = {title: max(len(title), *(len(row[title]) for row in rows)) for title in titles}
        if sum(widths.values()) + 2 * (len(titles) - 1) <= width or len(titles) <= 2:
            break
        titles.remove(last)
    widths = {title: max(len(title), *(len(row[title]) for row in rows)) for title in titles}
    lines = [{title: title for title in TITLES}, *rows]
    return [
        "  ".join(
            f"{line[title]:>{widths[title]}}" if title in NUMBERS else f"{line[title]:<{widths[title]}}"
            for title in titles
        ).rstrip()
        for line in lines
    ]


def as_json(run: ListedRun, now: float) -> dict[str, Any]:
    return {**asdict(run), "path": str(run.path.absolute()), "age_s": round(now - run.active, 1)}
