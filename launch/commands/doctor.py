"""`rlsys doctor`: look at this machine, or at every node of a cluster, before a run does."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from rich.console import Console

from launch.config.compose import compose
from launch.driver.observe.progress import Progress
from launch.tools.doctor.show import format_json, format_report, judge
from launch.tools.submit.server import use_token
from rlsys.errors import BadInput

HELP = "look at this machine, or at every node of a cluster, for what would stop a run"
EXAMPLES = """examples:
  rlsys doctor                                            this machine
  rlsys doctor research                                   with what a recipe needs: data, model, sandbox, room
  rlsys doctor research --cluster --run-dir /shared/runs/r1      every node of the Ray cluster that this node is part of
  rlsys doctor --cluster 10.0.0.1:6379 --json             the same by its address, for a program

exit codes: 0 nothing is wrong (warnings included), 1 an error was found, 2 bad input
"""
MOST_S = 3600  # seconds that --seconds takes: more is a slip


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a name under configs/ (quickstart) or a path to a YAML file"
    )
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="override a key of the config")
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        nargs="?",
        const="auto",
        help="look at the nodes of a running Ray cluster; its address, or none for the cluster of this node",
    )
    parser.add_argument("--run-dir", metavar="D", help="run directory: its disk, and whether all nodes share it")
    parser.add_argument(
        "--seconds", metavar="S", type=float, default=30.0, help="deadline of each look (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(options: argparse.Namespace) -> int:
    if options.cluster is not None:
        use_token()
    from launch.tools.doctor.examine import examine_cluster, examine_here, make_plan  # Ray and torch behind these

    if not 1 <= options.seconds <= MOST_S:
        raise BadInput(key="--seconds", found=options.seconds, expected=f"1 to {MOST_S}")
    if options.cluster is not None and "://" in options.cluster:
        expected = "HOST:6379 as `ray start` prints it, or none on a node of the cluster"
        raise BadInput(key="--cluster", found=options.cluster, expected=expected)
    config = compose(options.config, options.overrides) if options.config is not None else None
    run_dir = options.run_dir
    if options.cluster is not None and run_dir is not None:
        run_dir = str(Path(run_dir).resolve())  # the probes have working folders of their own
    plan = make_plan(config, options.config, run_dir, options.seconds)
    logging.getLogger("ray").setLevel(logging.ERROR)
    began = time.monotonic()
    with Progress(Console(stderr=True, highlight=False, soft_wrap=True)) as progress:
        if options.cluster is None:
            progress.doing("looking at this machine")
            facts, needs = examine_here(plan)
        else:
            facts, needs = examine_cluster(plan, options.cluster, progress.doing)
    seconds = time.monotonic() - began
    findings = judge(facts, needs)
    if options.json:
        print(format_json(facts, findings, seconds))
    else:
        print("\n".join(format_report(facts, findings, seconds)))
    return int(any(finding.level == "error" for finding in findings))
