"""`rlsys score`: rewards of given transcripts, offline, by the code that training calls."""

from __future__ import annotations

import argparse

from launch.commands.shared import add_config
from launch.config.compose import last_recipe
from launch.tools.score.report import score_file
from rlsys.errors import BadInput

HELP = "compute the rewards of given transcripts, offline"
EXAMPLES = """examples:
  rlsys score research --input answers.jsonl              rewards of given transcripts, as JSON lines
  rlsys score icrl --input answers.jsonl --explain 7      line 7: each rule that fired, and on which text
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "override a key, such as reward.clamp=false")
    parser.add_argument(
        "--input", metavar="F.jsonl", required=True, help='JSON lines of {"task": {...}, "response": "..."}; - is stdin'
    )
    parser.add_argument("--output", metavar="G.jsonl", help="file for the results, in order (default: stdout)")
    parser.add_argument("--strict", action="store_true", help="stop with exit code 2 at the first line that fails")
    parser.add_argument(
        "--explain", metavar="N", nargs="?", const="", help="explain the reward of line N (default: the first)"
    )


def run(options: argparse.Namespace) -> int:
    explain, overrides = options.explain, options.overrides
    if explain is not None and "=" in explain:  # `--explain reward.clamp=false`: no line number
        explain, overrides = "", [*overrides, explain]
    recipe = last_recipe(options.config, overrides)
    explained = None if explain is None else _line_number(explain)
    score_file(recipe, options.input, options.output, strict=options.strict, explained=explained)
    return 0


def _line_number(text: str) -> int:
    """0 stands for the first one."""
    if text and not (text.isascii() and text.isdigit() and 0 < len(text) < 16 and int(text) > 0):
        raise BadInput(key="--explain", found=text, expected="the number of a line, from 1")
    return int(text or 0)
