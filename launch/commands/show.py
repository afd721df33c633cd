"""`rlsys show`: trajectories of a run in the terminal."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from launch.driver.observe.progress import Bar
from launch.run_dir.directory import read_directory
from launch.run_dir.episodes import Episodes, read_episodes
from launch.tools.report.choice import WORDS, filter_episodes, find_named, parse_range, trajectory_name
from launch.tools.report.terminal import list_rows, show_episode
from rlsys.errors import BadInput
from rlsys.jsonl import json_object

HELP = "show trajectories of a run in the terminal: one, the siblings of a task, or a list by conditions"
EXAMPLES = """examples:
  rlsys show runs/q step-000240:1248.5                    one trajectory: group 1248, sibling 5 of step 240
  rlsys show runs/q step-000240:1248                      all siblings of that task
  rlsys show runs/q --step 201-245 --correct 0            a list
  rlsys show runs/q --end malformed --reward -1:0 --limit 10
  rlsys show runs/q step-000240:1248.5 --json | rlsys score runs/q/config.yaml --input - --explain

`rlsys view` shows the same in a browser; its links hold these names.
"""
NOT_A_TERMINAL = 160  # characters of a line in a pipe or a file, where COLUMNS does not say it
NUMBERS = {"step": "steps", "reward": "rewards", "correct": "1: right, 0: wrong", "tokens": "tokens sampled"}


def add(command: argparse.ArgumentParser) -> None:
    command._negative_number_matcher = re.compile(r"-[\d.]+(:-?[\d.]+)?")  # `--reward -1:0` is a value, no option
    command.add_argument("run_dir", metavar="RUN", type=Path, help="run directory of rlsys train")
    command.add_argument(
        "id", metavar="ID", nargs="?", help="FILE:GROUP.SIBLING or FILE:GROUP, as lists and links have it"
    )
    for name, description in NUMBERS.items():
        command.add_argument(f"--{name}", metavar="N|A-B|A:B", help=f"only these: {description}")
    for name in WORDS:
        command.add_argument(f"--{name}", metavar="WORD", help=f"only those whose {name} has this word; any, none")
    command.add_argument("--limit", metavar="N", type=int, default=50, help="length of a list (default: %(default)s)")
    command.add_argument("--json", action="store_true", help="the line as the run wrote it, for `rlsys score`")


def run(options: argparse.Namespace) -> int:
    ranges = {name: parse_range(text, f"--{name}") for name in NUMBERS if (text := getattr(options, name)) is not None}
    words = {name: text for name in WORDS if (text := getattr(options, name)) is not None}
    if options.id is not None and (ranges or words):
        raise BadInput(key="ID", found=options.id, expected="conditions or the name of a trajectory, and not both")
    if options.limit < 1:
        raise BadInput(key="--limit", found=options.limit, expected="1 or more")
    with Bar() as bar:
        episodes = read_episodes(read_directory(options.run_dir), bar)
    rows = filter_episodes(episodes, ranges, words) if options.id is None else find_named(episodes, options.id)
    if options.json:
        return print_json(episodes, rows[: options.limit])
    if options.id is None:
        return print_list(episodes, rows, options.limit)
    console = Console(highlight=False)
    for at, line in episodes.lines(rows):
        show_episode(console, trajectory_name(episodes, at), json_object(line, trajectory_name(episodes, at)))
        console.print()
    return 0


def print_json(episodes: Episodes, rows: Sequence[int]) -> int:
    for at, line in episodes.lines(rows):
        sys.stdout.write(json.dumps(json_object(line, trajectory_name(episodes, at))) + "\n")  # nothing but ASCII
    return 0


def print_list(episodes: Episodes, rows: Sequence[int], limit: int) -> int:
    width = shutil.get_terminal_size((NOT_A_TERMINAL, 24)).columns
    for line in list_rows(episodes, rows[:limit], width):
        print(line)
    print(
        f"{len(rows):,} of {len(episodes):,} trajectories"
        + (f"; the first {limit} are shown (--limit)" if len(rows) > limit else "")
    )
    return 0
