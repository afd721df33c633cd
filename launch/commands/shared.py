"""Arguments that several commands take, and the configs that they mean."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any, TypeVar

from launch.config.compose import TABLES
from launch.config.keys import known_names
from launch.config.synonyms import suggest_key

Config = TypeVar("Config")

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def config_from_options(config: type[Config], options: argparse.Namespace, **more: Any) -> Config:
    """A config from the options that are named like its fields."""
    names = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    return config(**{name: value for name, value in vars(options).items() if name in names} | more)


def as_key(word: str) -> str:
    """How an option of another system is given here, where `--lr` is a key of the configuration."""
    name = word.lstrip("-").partition("=")[0].replace("-", "_")
    key_names = known_names(TABLES, {})
    hint = f" ({name}=...)" if name in key_names else suggest_key(name, key_names)
    return f": keys are given as key=value, without dashes{hint}"


def add_config(parser: argparse.ArgumentParser, overrides: str = "override a key of the config") -> None:
    parser.add_argument("config", metavar="CONFIG", help="a name under configs/ (quickstart) or a path to a YAML file")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help=overrides)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        metavar="D|HF_ID",
        help="run directory, RUN_DIR@best, checkpoint, model folder or hub name (default: the last run's; without one "
        "model.path, or the untrained policy)",
    )


def add_test(parser: argparse.ArgumentParser) -> None:
    """How two evaluations are tested for a difference."""
    parser.add_argument(
        "--test",
        choices=("paired", "paper"),
        default="paired",
        help="paired: over the tasks of both; paper: Graph-RL's z-test of two proportions (default: %(default)s)",
    )


def add_address(command: argparse.ArgumentParser, *, port: int) -> None:
    """Where a service listens, and who may ask."""
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument("--port", type=int, default=port, help="port; 0: a free one (default: %(default)s)")
    arrive = "seconds in which a request has to arrive whole (default: %(default)g)"
    command.add_argument("--arrive", dest="arrive_s", type=float, default=30.0, metavar="S", help=arrive)
    command.add_argument(
        "--token-env", metavar="NAME", help="environment variable with the bearer token that requests must carry"
    )


def warn_if_open(host: str, token_env: str | None) -> None:
    if host not in LOOPBACK and token_env is None:
        print(f"rlsys: warning: {host} without --token-env: any client that reaches it may ask", file=sys.stderr)
