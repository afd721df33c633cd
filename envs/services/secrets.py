"""Keys and tokens, and where they may travel: one rule for all that a configuration or a command line names.

An option that ends in `key_env` or `token_env` holds the NAME of an environment variable. What looks like the secret
itself is refused, and no message shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from rlsys.errors import BadInput, require

_NAMING = ("key_env", "token_env")
_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_NO_WORD = re.compile(r"(?=[A-Z]*[0-9])[A-Z0-9]{16,}")  # between two underscores: letters and digits of a key
_USER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[^\s/?#]*@")


def names_a_secret(option: str) -> bool:
    """Whether an option names a secret: `judge.key_env`, and one in a list or mapping there: `judge.key_env.0`."""
    return any(part.endswith(_NAMING) for part in option.split("."))


def secret_variables(config: Any) -> Iterator[str]:
    """The variables that a configuration names, at any depth; the classes of its sections may be a user's own."""
    for field in fields(config):
        value = getattr(config, field.name)
        for part in value if isinstance(value, list) else [value]:
            if is_dataclass(part):
                yield from secret_variables(part)
            elif names_a_secret(field.name) and isinstance(part, str):
                yield part


def check_variable(option: str, variable: str) -> None:
    """Raises BadInput for what is no variable's name, perhaps because it is the key: without showing it."""
    is_name = _NAME.fullmatch(variable) and not any(_NO_WORD.fullmatch(part) for part in variable.split("_"))
    if not is_name:
        expected = "the name of an environment variable, in capitals, such as JUDGE_KEY"
        raise BadInput(where=option, expected=f"{expected}; what was found is not shown, for it may be the key itself")


def check_text(option: str, text: str) -> None:
    """Raises BadInput for an address with a user or a password in it, and for a key in a name's place."""
    if _USER.search(text):
        raise BadInput(where=option, expected="an address without user and password (not shown)")
    if names_a_secret(option):
        check_variable(option, text)


def check_no_password(option: str, url: str, key_option: str) -> None:
    """Raises BadInput, without the address, where a secret may stand in it."""
    if any(sign in url for sign in "@?#"):
        raise BadInput(where=option, expected=f"an address without a password, ? and #: {key_option} names the key")


def check_address(option: str, url: str | None, key: tuple[str, str | None], *, plain_http: bool = False) -> None:
    """Raises BadInput: no http address, or one with a secret in it, or a key that others on the way could read.

    `key` is the option that names the key for it, and what that says; with `plain_http` the user allows the last.
    """
    key_option, variable = key
    if variable is not None:
        check_variable(key_option, variable)
    if url is None:
        return
    check_no_password(option, url, key_option)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:  # not shown: it may be a key that stands in the wrong place
        raise BadInput(where=option, expected="an http or https address (what was found is not shown)")
    safe = variable is None or plain_http or parts.scheme == "https" or is_loopback(url)
    section, _, name = key_option.rpartition(".")
    allowed = "--plain-http" if name.startswith("--") else f"{section}.plain_http=true"
    expected = f"null with plain http to another machine: the key would be read (https, or {allowed}, mends it)"
    require(safe, key_option, variable, expected)


def read_secret(option: str, variable: str | None) -> str | None:
    """read_secret("judge.key_env", "JUDGE_KEY") is what JUDGE_KEY holds, without blanks around it; None for no name.

    Raises BadInput, never with the value's text, for what is no name and a variable that is not set or holds what no
    HTTP header can.
    """
    if variable is None:
        return None
    check_variable(option, variable)
    value = os.environ.get(variable, "").strip()
    if value and value.isascii() and value.isprintable() and " " not in value:
        return value
    problem = "holds characters that no key has" if value else "is empty" if variable in os.environ else "is not set"
    raise BadInput(f"the environment variable {variable} {problem}", where=option)


def is_loopback(url: str) -> bool:
    """Whether a url stays on this machine. Of names only `localhost` does: nothing is looked up."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
