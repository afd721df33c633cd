"""Where `rlsys serve retriever` and `rlsys serve judge` listen, and who may ask."""

from __future__ import annotations

import argparse
import sys

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def add_address(command: argparse.ArgumentParser, *, port: int) -> None:
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument("--port", type=int, default=port, help="0 takes a free one (default: %(default)s)")
    command.add_argument(
        "--token-env", metavar="NAME", help="environment variable that holds the bearer token to ask for"
    )


def warn_if_open(host: str, token_env: str | None) -> None:
    if host not in LOOPBACK and token_env is None:
        print(f"rlsys: warning: {host} without --token-env: whoever reaches it may ask", file=sys.stderr)
