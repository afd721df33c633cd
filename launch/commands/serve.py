"""`rlsys serve`: a service alone."""

from __future__ import annotations

import argparse
import importlib

HELP = "serve the retriever or the judge alone"
EXAMPLES = """examples:
  rlsys serve retriever --corpus wiki.jsonl --port 8000   the retrieval service alone
  rlsys serve judge --model ./my-judge                    the judge alone, or --endpoint URL --model NAME
"""
SERVICES = {"retriever": "launch.commands.serve_retriever", "judge": "launch.commands.serve_judge"}


def add(parser: argparse.ArgumentParser) -> None:
    services = parser.add_subparsers(dest="served", metavar="SERVICE", required=True)
    for name, path in SERVICES.items():
        module = importlib.import_module(path)
        command = services.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add(command)


def run(options: argparse.Namespace) -> int:
    return int(importlib.import_module(SERVICES[options.served]).run(options))
