"""`rlsys compare`: the results of several evaluations in one table, with tests, average increases and correlations."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.checks.preflight import check_output
from launch.commands.shared import add_test
from launch.driver.evaluation.compare import ComparedSetting, as_json, comparison_lines
from launch.run_dir.names import evaluation_name
from launch.run_dir.played import read_played
from rlsys.errors import BadInput, require
from rlsys.files import replace_file
from rlsys.jsonl import json_object
from rlsys.untrusted import visible

HELP = "compare the results of several evaluations: tests against the first, average increase, correlations"
EXAMPLES = """examples:
  rlsys compare zero.json sft.json grpo.json                    tests the others against the first
  rlsys compare base=b0.json,b1.json ours=o0.json,o1.json       several seeds of one setting: mean and spread
  rlsys compare runs/a runs/b                                   the last evaluation of each run
  rlsys compare runs/a/evaluations/rl-before.json runs/a/evaluations/rl-after.json --output table.json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="+", metavar="RESULT", help="JSON result of an evaluation, RUN_DIR, or NAME=ONE,ANOTHER"
    )
    add_test(parser)
    parser.add_argument("--alpha", type=float, default=0.01, metavar="P", help="largest marked p value (default: 0.01)")
    parser.add_argument("--output", metavar="F", help="write the table as JSON")


def run(options: argparse.Namespace) -> int:
    require(0 < options.alpha < 1, "--alpha", options.alpha, "between 0 and 1")
    if options.output is not None:
        check_output(options.output)
    settings = settings_of(options.results)
    print("\n".join(comparison_lines(settings, options.alpha, options.test)))
    if options.output is not None:
        replace_file(Path(options.output), json.dumps(as_json(settings, options.test), indent=1) + "\n")
    return 0


# -- what is given ----------------------------------------------------------------------------------------------------


def settings_of(words: Sequence[str]) -> list[ComparedSetting]:
    """Of RESULT, RUN_DIR, or NAME=ONE,ANOTHER. Raises BadInput for a run without results, and two of one name."""
    split = [("", [word]) if os.path.exists(word) else _parse_named_results(word) for word in words]
    files = [tuple(_result_file(Path(path)) for path in paths) for _, paths in split]
    alone = [paths[0] for (name, _), paths in zip(split, files, strict=True) if not name]
    ways = WAYS[1:] if any(os.path.isdir(word) for word in words) else WAYS
    calling = next((way for way in ways if len({way(path) for path in alone}) == len(alone)), str)
    names = [visible(name or calling(paths[0])) for (name, _), paths in zip(split, files, strict=True)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput("two results of one name", where=", ".join(twice), expected="NAME=FILE to tell them apart")
    return [
        ComparedSetting(name=name, seeds=[read_played(str(path), str(path)) for path in paths])
        for name, paths in zip(names, files, strict=True)
    ]


def _parse_named_results(word: str) -> tuple[str, list[str]]:
    name, is_named, files = word.partition("=")
    return (name, files.split(",")) if is_named else ("", [word])


def _result_file(path: Path) -> Path:
    """Of a run directory its last evaluation."""
    if not path.is_dir():
        return path
    try:
        lines = (path / "evaluations.jsonl").read_bytes().splitlines()
    except OSError as error:
        raise BadInput(
            "a folder without evaluations.jsonl", where=path, expected="a run directory or a JSON file"
        ) from error
    if not lines:
        raise BadInput("no evaluation in it yet", where=path)
    last = json_object(lines[-1], f"{path}/evaluations.jsonl line {len(lines)}")
    stage, when, step = (last.get(key) for key in ("stage", "when", "step"))
    if not (isinstance(stage, str) and isinstance(when, str) and type(step) is int):
        raise BadInput(f"{path}/evaluations.jsonl line {len(lines)}", expected="stage, when and step")
    return path / "evaluations" / f"{evaluation_name(stage, when, step)}.json"


def _run_name(path: Path) -> str:
    """Of RUN/evaluations/rl-after.json RUN; of another file its folder."""
    folder = Path(os.path.abspath(path)).parent
    return (folder.parent if folder.name == "evaluations" else folder).name


# How unnamed files are labelled: by the first of these ways that gives no two files the same label. A file given as
# a run has the run's name.
WAYS: tuple[Callable[[Path], str], ...] = (
    lambda path: path.stem,
    _run_name,
    lambda path: f"{_run_name(path)}/{path.stem}",
)
