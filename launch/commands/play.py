"""`rlsys play`: an episode in which you write the model's messages. No engine, no Ray, no torch."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from launch.checks.preflight import check_output
from launch.commands.shared import add_config
from launch.config.compose import last_recipe
from launch.tools.score.play import NO_MORE, lines_of, play
from rlsys.errors import BadInput, RunFailed
from rlsys.untrusted import visible

HELP = "play an episode: you write the model's messages and see the reward; no engine is started"
EXAMPLES = """examples:
  rlsys play quickstart                                   the first task, at this terminal; Ctrl-D leaves
  rlsys play quickstart --split held_out --task 7         the seventh held-out task
  rlsys play quickstart --answers said.txt --output played.jsonl
  rlsys score quickstart --input played.jsonl --explain   the same reward, later

Each line is a message. A line that ends in a backslash continues in the next; "two\\nlines" is read as JSON.
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "override a key, such as env.data=mine.jsonl or reward.name=mine.Reward")
    parser.add_argument("--answers", metavar="FILE", help="messages, one per line (default and -: standard input)")
    parser.add_argument("--task", metavar="ID|N", help="id of the task, or its number in the split, counted from 1")
    parser.add_argument("--split", choices=("train", "held_out", "all"), default="train", help="default: %(default)s")
    parser.add_argument("--seed", metavar="S", type=int, help="seed that draws the task (default: the first task)")
    parser.add_argument("--output", metavar="F.jsonl", help="file to append the episode to, in a run's format")


def run(options: argparse.Namespace) -> int:
    if options.task is not None and options.seed is not None:
        raise BadInput(key="--task and --seed", expected="one of the two")
    recipe = last_recipe(options.config, options.overrides)

    import asyncio
    import os
    import sys

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    with stop_at_once(), lines_of(options.answers) as lines:
        if options.output is not None:
            check_output(options.output)
        episode = play(recipe, lines, split=options.split, task=options.task, seed=options.seed, color=color)
        played = asyncio.run(episode)
        unread = lines.read("").strip() if options.answers not in (None, "-") else ""
    if unread:
        print("rlsys: warning: the episode ended before the messages did", file=sys.stderr)
    if options.output is not None:
        append(Path(options.output), played.line)
    if played.failure is NO_MORE:
        if lines.typed:  # Ctrl-D: the user has seen enough
            print("left before the episode ended: no reward")
            return 0
        where = options.answers or "standard input"
        raise BadInput("no more messages, and the episode has not ended: no reward", where=where)
    if failure := played.failure:
        raise RunFailed(f"no reward: {failure.kind} in {failure.where}: {visible(failure.detail)}")
    return 0


@contextlib.contextmanager
def stop_at_once() -> Iterator[None]:
    """Ctrl-C and SIGTERM unwind from a line that is being waited for too; tools end on the way."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def append(path: Path, line: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(line)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", key="--output", found=path) from error
