"""`rlsys compare`: the results of several evaluations in one table, with tests, average increases and correlations."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from launch.checks.preflight import check_output
from launch.commands.shared import add_test
from launch.evaluation.compare import Setting, as_json, lines
from launch.evaluation.named import named
from launch.evaluation.played import read_played
from rlsys.errors import require
from rlsys.files import replace_file

HELP = "results of several evaluations side by side: tests against the first, average increase, correlations"
EXAMPLES = """examples:
  rlsys compare zero.json sft.json grpo.json                    the first one is what the others are tested against
  rlsys compare base=b0.json,b1.json ours=o0.json,o1.json       several seeds of one setting: mean and spread
  rlsys compare runs/a runs/b                                   the last evaluation of each run
  rlsys compare runs/a/evaluations/rl-before.json runs/a/evaluations/rl-after.json --output table.json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="+", metavar="RESULT", help="JSON of an evaluation, RUN_DIR, or NAME=ONE,ANOTHER"
    )
    add_test(parser)
    parser.add_argument("--alpha", type=float, default=0.01, metavar="P", help="marked below this p (default: 0.01)")
    parser.add_argument("--output", metavar="F", help="write the table as JSON")


def run(options: argparse.Namespace) -> int:
    require(0 < options.alpha < 1, "--alpha", options.alpha, "between 0 and 1")
    if options.output is not None:
        check_output(options.output)
    settings = [
        Setting(name=each.name, seeds=[read_played(str(path), str(path)) for path in each.files])
        for each in named(options.results)
    ]
    print("\n".join(lines(settings, options.alpha, options.test)))
    if options.output is not None:
        replace_file(Path(options.output), json.dumps(as_json(settings, options.test), indent=1) + "\n")
    return 0
