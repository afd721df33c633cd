"""`rlsys plan`: what a run needs of given machines, before any of them is rented."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from launch.checks.known_models import SHAPES, named_shape
from launch.commands.shared import add_config
from launch.tools.plan.nodes import parse_nodes
from launch.tools.plan.plan import Request, make_plan
from launch.tools.plan.show import plan_json, plan_lines
from rlsys.errors import BadInput

HELP = "plan a run: memory, disk, the time of a step and the best split of given machines"
EXAMPLES = """examples:
  rlsys plan quickstart                                                   on this machine
  rlsys plan gpu/qwen2.5-7b-16xa100 --nodes 2x8xA100-80G                  on two nodes of eight cards
  rlsys plan gpu/qwen2.5-7b-16xa100 --nodes 1x8xH100:1000G                with the RAM of a node
  rlsys plan my.yaml --nodes 1x4xL40S --shape 3b                          a model that nothing describes yet
  rlsys plan gpu/qwen2.5-7b-16xa100 --nodes 2x8xA100-80G --answer-tokens 2048    with shorter answers
  rlsys plan quickstart --from runs/quickstart                            times and lengths as a run has measured them
  rlsys plan quickstart --from runs/quickstart stages.rl.loop.groups_per_step=64     ... with other keys
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
    parser.add_argument(
        "--from",
        dest="run_dir",
        metavar="RUN_DIR",
        type=Path,
        help="run directory whose last rl stage gives the speeds of engines and learner, and lengths of episodes "
        "(default: the cards' data sheets, on GPUs)",
    )
    network = "bandwidth between nodes in Gbit/s: 100G, 25G (default: 100G)"
    parser.add_argument("--network", metavar="RATE", help=network)
    parser.add_argument(
        "--answer-tokens",
        metavar="N",
        type=int,
        help="tokens of an answer and its prompt, without --from (default: the longest that the limits allow)",
    )
    prefill = "of --answer-tokens: prompt, examples in it, results of tools, which no engine samples (default: 0)"
    parser.add_argument("--prefill-tokens", metavar="N", type=int, default=0, help=prefill)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    plan = make_plan(
        Request(
            config=options.config,
            overrides=tuple(options.overrides),
            nodes=parse_nodes(options.nodes) if options.nodes is not None else None,
            shape=named_shape(options.shape) if options.shape is not None else None,
            run=options.run_dir,
            network=parse_network(options.network) if options.network is not None else None,
            answer_tokens=check_tokens(options.answer_tokens, options.prefill_tokens, options.run_dir),
            prefill_tokens=options.prefill_tokens,
        )
    )
    print(json.dumps(plan_json(plan), indent=1) if options.json else "\n".join(plan_lines(plan)))
    return 0 if plan.fits else 2


def parse_network(text: str) -> float:
    """ "100G" in Gbit/s. Raises BadInput."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)G", text)
    if match is None or not float(match[1]):
        raise BadInput(key="--network", found=text, expected="Gbit/s, such as 100G")
    return float(match[1])


def check_tokens(count: int | None, prefilled: int, measured: Path | None) -> int | None:
    """measured: a run whose lengths are taken. Raises BadInput."""
    if count is not None and measured is not None:
        raise BadInput(key="--answer-tokens", found=count, expected="none with --from, which has lengths of its own")
    if count is not None and count < 1:
        raise BadInput(key="--answer-tokens", found=count, expected="at least 1")
    if prefilled and (count is None or not 0 < prefilled < count):
        raise BadInput(key="--prefill-tokens", found=prefilled, expected="0, or below an --answer-tokens that is given")
    return count
