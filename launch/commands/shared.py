"""Arguments that several commands take."""

from __future__ import annotations

import argparse


def add_config(parser: argparse.ArgumentParser, overrides: str = "override a key of the config") -> None:
    parser.add_argument("config", metavar="CONFIG", help="a name under configs/ (quickstart) or a path to a YAML file")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help=overrides)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        metavar="D|HF_ID",
        help="run directory, checkpoint, model folder or hub name (default: the last run's)",
    )
