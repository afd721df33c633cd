"""Keys and tokens, and where they may travel.

A configuration names the environment variable that holds one, and nothing shows its value.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from urllib.parse import urlsplit

from rlsys.errors import BadInput


def read_secret(option: str, variable: str | None) -> str | None:
    """read_secret("judge.key_env", "JUDGE_KEY") is what JUDGE_KEY holds, without blanks around it; None for no name.

    Raises BadInput, never with the value's text, for a variable that is not set or holds what no HTTP header can.
    """
    if variable is None:
        return None
    value = os.environ.get(variable, "").strip()
    if value and value.isascii() and value.isprintable() and " " not in value:
        return value
    found = "holds characters that no key has" if value else "is empty" if variable in os.environ else "is not set"
    raise BadInput(f"{option}: the environment variable {variable} {found}")


def is_loopback(url: str) -> bool:
    """Whether a url stays on this machine. Of names only `localhost` does: nothing is looked up."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
