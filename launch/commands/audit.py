"""`rlsys audit`: proves from a run directory alone that nothing was lost, trained twice or changed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from launch.tools.audit.files import read_run
from launch.tools.audit.properties import audit
from launch.tools.audit.property import Property
from rlsys.untrusted import visible

HELP = "prove that nothing of a run was lost, trained twice or changed"
EXAMPLES = """examples:
  rlsys audit runs/quickstart                     a line for each property; exit code 1 if one does not hold
  rlsys audit runs/quickstart --cheap             without checkpoints and episodes, as `rlsys train` does at its end
  rlsys audit runs/quickstart --json              all that does not fit, for programs
"""
MOST_SHOWN = 10  # of what does not fit, of one property


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory, of a run that is over or in progress")
    parser.add_argument("--cheap", action="store_true", help="read the journal and the rows alone: seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    looked = read_run(Path(options.run_dir))
    found = audit(looked, cheap=options.cheap, show=lambda said: print(f"  {said}", file=sys.stderr))
    holds = all(each.holds for each in found)
    if options.json:
        print(json.dumps(as_json(found) | {"state": looked.state}, indent=1))
    else:
        for line in describe(found):
            print(line)
        if looked.state == "running":
            print("the run is in progress: what it has not written yet is not looked at")
    return 0 if holds else 1


def as_json(found: list[Property]) -> dict[str, object]:
    properties = {
        each.name: {"holds": each.holds, "says": each.says, "offenders": list(each.offenders)} for each in found
    }
    return {"holds": all(each.holds for each in found), "properties": properties}


def describe(found: list[Property]) -> list[str]:
    """A line for each property, and below it what does not fit."""
    lines = []
    for each in found:
        lines.append(f"{'ok' if each.holds else 'NO':<3} {each.name:<12} {visible(each.says)}")
        lines += [f"      {visible(offender)}" for offender in each.offenders[:MOST_SHOWN]]
        if (more := len(each.offenders) - MOST_SHOWN) > 0:
            lines.append(f"      and {more:,} more (--json lists them)")
    return lines
