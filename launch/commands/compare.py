"""`rlsys compare`: the results of several evaluations in one table, with tests, average increases and correlations."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

HELP = "results of several evaluations side by side: z-tests against the first, average increase, correlations"
EXAMPLES = """examples:
  rlsys compare zero.json sft.json grpo.json                    the first one is what the others are tested against
  rlsys compare base=b0.json,b1.json ours=o0.json,o1.json       several seeds of one setting: mean and spread
  rlsys compare runs/a/evaluations/rl-before.json runs/a/evaluations/rl-after.json --output table.json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", metavar="RESULT", help="JSON of an evaluation, or NAME=FILE,FILE..")
    parser.add_argument("--alpha", type=float, default=0.01, metavar="P", help="marked below this p (default: 0.01)")
    parser.add_argument("--output", metavar="F", help="write the table as JSON")


def run(options: argparse.Namespace) -> int:
    from launch.evaluation.compare import Setting, as_json, lines
    from launch.evaluation.played import read_played
    from launch.run.preflight import check_output
    from rlsys.errors import BadInput, require
    from rlsys.files import replace_file
    from rlsys.visible import visible

    require(0 < options.alpha < 1, "--alpha", options.alpha, "between 0 and 1")
    if options.output is not None:
        check_output(options.output)
    settings: list[Setting] = []
    for given in options.results:
        name, named, files = ("", "", "") if os.path.isfile(given) else given.partition("=")
        paths = files.split(",") if named else [given]
        settings.append(
            Setting(name=visible(name or Path(given).stem), seeds=[read_played(path, path) for path in paths])
        )
    names = [each.name for each in settings]
    if len(set(names)) != len(names):
        raise BadInput(f"{', '.join(names)}: two results of one name, expected NAME=FILE to tell them apart")
    print("\n".join(lines(settings, options.alpha)))
    if options.output is not None:
        replace_file(Path(options.output), json.dumps(as_json(settings), indent=1) + "\n")
    return 0
