"""`rlsys report`: what a run or several came to, as one page to look at and to send."""

from __future__ import annotations

import argparse
import json
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.driver.observe.progress import Bar
from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.episodes import Episodes, read_episodes
from launch.tools.report.build import build_report
from launch.tools.report.first_screen import first_screen_lines
from launch.tools.report.kept import Room, parse_room
from launch.tools.report.page import KEEP, write_page
from launch.tools.report.redact import redact
from rlsys.errors import BadInput, require
from rlsys.files import files_or_bad_input, is_there, replace_file

HELP = "make one page of a run or several: did it learn, may it be trusted, what to do, and its trajectories"
EXAMPLES = """examples:
  rlsys report runs/quickstart                            writes runs/quickstart/report.html, and report.json next to it
  rlsys report runs/a runs/b --output a-and-b.html        side by side; runs that differ in their seed alone are a band
  rlsys report runs/quickstart --trajectories none        curves and numbers only
  rlsys report runs/quickstart --redact --output send.html       without paths, machines, tasks and trajectories
  rlsys report runs/quickstart --json                     the numbers alone, on the terminal

A run may still be in progress, or have been killed: the report says so. docs/how-to/read-a-report.md explains the page.
"""

LARGE_MB = 25  # of a page
PAGE_MARK, MARKED_BYTES = " · rlsys</title>".encode(), 65_536  # what tells a page of ours, behind at most four names


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_dirs", metavar="RUN_DIR", nargs="+", type=Path, help="run directory of rlsys train")
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="page to write, with .json next to it (default: RUN_DIR/report.html; for several runs ./report.html)",
    )
    command.add_argument(
        "--trajectories",
        metavar="N|SIZE|all|none",
        default=KEEP,
        help="number of trajectories that the page holds, or their size in it (default: %(default)s)",
    )
    command.add_argument("--redact", action="store_true", help="leave out paths, machines, tasks and trajectories")
    command.add_argument("--price", metavar="P", type=float, help="price of a GPU for an hour, in any currency")
    command.add_argument("--json", action="store_true", help="print the numbers as JSON, and write no file")
    command.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace) -> int:
    room = parse_room("none" if options.redact else options.trajectories)
    require(options.price is None or options.price >= 0, "--price", options.price, "0 or more")
    runs = [read_directory(path) for path in options.run_dirs]
    output = options.output or (runs[0].path if len(runs) == 1 else Path()) / "report.html"
    if not options.json:
        check_output(output)
    episodes = read_all(runs)
    report = build_report(runs, episodes, price=options.price, anonymous=options.redact)
    if options.redact:
        report = redact(report)
    text = to_text(report)
    if options.json:
        print(text, end="")
        return 0
    with files_or_bad_input():
        replace_file(output.with_suffix(".json"), text)
        write_page(report, episodes, output, room)
    size_mb = output.stat().st_size / 1e6
    print("\n".join(first_screen_lines(report)))
    print(f"written to {output} ({size_mb:.1f} MB)")
    if size_mb > LARGE_MB:
        print(f"rlsys: warning: browsers open such a file slowly: {advise_smaller(room)}", file=sys.stderr)
    if options.open and not webbrowser.open(output.resolve().as_uri()):
        view = "" if options.redact else f", or rlsys view {' '.join(map(str, options.run_dirs))}"
        print(f"no browser was found here: copy the file{view}")
    return 0


def advise_smaller(room: Room | None) -> str:
    """What to give in the place of this room, which may be the default's already."""
    usual = parse_room(KEEP)
    more = room is None or not room.in_bytes or (usual is not None and room.most > usual.most)
    return f"--trajectories {KEEP if more else 'none, or a smaller size than the page has now,'} makes it smaller"


def check_output(page: Path) -> None:
    """Neither the page nor the .json next to it may replace what is no report: summary.json, run.json ..."""
    require(page.suffix in (".html", ".htm"), "--output", str(page), "the name of a page, which ends in .html")
    with files_or_bad_input():
        for path, is_ours in ((page, _is_page), (page.with_suffix(".json"), _is_report)):
            if is_there(path) and not is_ours(path):
                raise BadInput("there is another file of this name, which is no report", where=path, key="--output")


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return PAGE_MARK in file.read(MARKED_BYTES)


def _is_report(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"format", "runs"} <= document.keys()


def read_all(runs: Sequence[RunDirectory]) -> list[Episodes]:
    with Bar() as show:
        return [read_episodes(run, show) for run in runs]


def to_text(report: dict[str, Any]) -> str:
    """The same for the same run: nothing in it is of the time when it was made."""
    return json.dumps(report, ensure_ascii=False, allow_nan=False) + "\n"
