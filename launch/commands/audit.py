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
    checks = audit(looked, cheap=options.cheap, show=lambda message: print(f"  {message}", file=sys.stderr))
    holds = all(check.holds for check in checks)
    if options.json:
        print(json.dumps(as_json(checks) | {"state": looked.state}, indent=1))
    else:
        for line in describe(checks):
            print(line)
        if looked.state == "running":
            print("the run is in progress: what it has not written yet is not looked at")
    return 0 if holds else 1


def as_json(checks: list[Property]) -> dict[str, object]:
    properties = {
        check.name: {"holds": check.holds, "says": check.says, "offenders": list(check.offenders)} for check in checks
    }
    return {"holds": all(check.holds for check in checks), "properties": properties}


def describe(checks: list[Property]) -> list[str]:
    """A line for each property, and below it what does not fit."""
    lines = []
    for check in checks:
        lines.append(f"{'ok' if check.holds else 'NO':<3} {check.name:<12} {visible(check.says)}")
        lines += [f"      {visible(offender)}" for offender in check.offenders[:MOST_SHOWN]]
        if (more := len(check.offenders) - MOST_SHOWN) > 0:
            lines.append(f"      and {more:,} more (--json lists them)")
    return lines
