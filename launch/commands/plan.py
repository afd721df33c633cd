"""`rlsys plan`: what a run needs of given machines, before any of them is rented."""

from __future__ import annotations

import argparse
import json

from launch.checks.known_models import SHAPES, named_shape
from launch.commands.shared import add_config
from launch.plan.nodes import parse_nodes
from launch.plan.plan import Request, make_plan
from launch.plan.show import plan_json, plan_lines

HELP = "plan a run: memory and disk on given machines, and keys with which it fits"
EXAMPLES = """examples:
  rlsys plan quickstart                                                   on this machine
  rlsys plan gpu/qwen2.5-7b-16xa100 --nodes 2x8xA100-80G                  on two nodes of eight cards
  rlsys plan gpu/qwen2.5-7b-16xa100 --nodes 1x8xH100:1000G                with the RAM of a node
  rlsys plan my.yaml --nodes 1x4xL40S --shape 3b                          a model that nothing describes yet
  rlsys plan quickstart --nodes 1x2cpu-24G --json                         for a program

Exit code 0: it fits. 2: it does not, or the input is bad; where other keys would fit, they are shown.
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--nodes",
        metavar="NODES",
        help="machines: 2x8xA100-80G (nodes x cards x card), 2x8xA100-80G:1000G (with the RAM of a node) or "
        "1x2cpu-24G (default: this machine, or as many usual ones as a recipe for GPUs takes)",
    )
    parser.add_argument(
        "--shape",
        metavar="SIZE",
        help=f"sizes of a known model in the place of the recipe's: {', '.join(SHAPES)}, or a hub name",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    plan = make_plan(
        Request(
            config=options.config,
            overrides=tuple(options.overrides),
            nodes=parse_nodes(options.nodes) if options.nodes is not None else None,
            shape=named_shape(options.shape) if options.shape is not None else None,
        )
    )
    print(json.dumps(plan_json(plan), indent=1) if options.json else "\n".join(plan_lines(plan)))
    return 0 if plan.fits else 2
