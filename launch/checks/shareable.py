"""What a run may show to others: texts without values of secrets, and without home folders, which name a user.

`redact_arguments` is for arguments as they were typed, `Hider` for whole files: logs, stacks, configurations.
"""

from __future__ import annotations

import contextlib
import json
import netrc
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from envs.services.secrets import names_a_secret
from rlsys.config.cluster import LIKE_KEY, SECRET, WITH_PASSWORD

HIDDEN = "***"
HOST = "this-host"
HOME = re.compile(r"(?<![\w./])(?:/[\w.-]+)*/(?:home|Users)/[^/\s]+")
INSIDE = re.compile(
    r"([\w.-]*(?:key|token|secret|password|passphrase)\w*['\"]?\s*:\s*)[^,}\]]+", re.IGNORECASE
)  # {api_key: x}
SHORTEST = 6  # characters of a value that is looked for: a shorter one is a word of many lines
TOKEN_FILES = ("~/.cache/huggingface/token", "~/.huggingface/token", "~/.ray/auth_token")
_NAME = r"[\w.-]{0,60}?(?:api_?key|access_?key|token|secret|passw(?:or)?d|passphrase|pwd|credentials?|authorization)"
# api_key=x, "token": "x", --password x, Authorization: Bearer x; not max_tokens: 12, token_ids: [..]
GIVEN = re.compile(
    rf"(?P<name>\b{_NAME}['\"]?(?:\s*[=:]\s*|\s+(?=Bearer\s)))(?P<mark>['\"]?(?:Bearer\s+|Basic\s+)?)"
    r"(?P<value>(?!\d{1,9}(?:\.\d+)?\b|null\b|None\b|true\b|false\b|\*\*\*)[^\s'\"&,;}\])]+)",
    re.IGNORECASE,
)
FLAG = re.compile(rf"(?P<name>--{_NAME}\s+)(?P<value>[^\s-][^\s]*)", re.IGNORECASE)
BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")
USER = re.compile(r"://[^/\s]{1,2000}@")  # a user, a password, or a token in their place


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments as typed, but for values of secrets, and home folders, which name a user."""
    return [without_home(_without_secret(argument)) for argument in arguments]


def _without_secret(argument: str) -> str:
    key, equals, _ = argument.partition("=")
    leaf = key.lstrip("-").rpartition(".")[2].replace("-", "_")
    ends_so = any(match.end() == len(leaf) for match in SECRET.finditer(leaf))  # api_key, and not max_token_lag
    if equals and (names_a_secret(key) or ends_so):
        return f"{key}={HIDDEN}"
    hidden = LIKE_KEY.sub(HIDDEN, INSIDE.sub(rf"\1{HIDDEN}", argument) if "{" in argument else argument)
    return WITH_PASSWORD.sub(f"://{HIDDEN}@", hidden)


def without_home(text: str) -> str:
    home = os.path.expanduser("~")
    if home not in ("/", "~"):
        text = re.sub(rf"(?<![\w.]){re.escape(home)}(?=/|$)", "~", text, flags=re.MULTILINE)
    return HOME.sub("~", text)


class Hider:
    """Takes out of a text every known value of a secret, whatever looks like one, home folders and the host's name."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        written = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        longest_first = sorted(written, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        host = socket.gethostname()
        self._host = re.compile(rf"(?<![\w-]){re.escape(host)}(?![\w-])") if len(host) > 3 else None

    def hide(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        text = BEARER.sub(rf"\1 {HIDDEN}", USER.sub(f"://{HIDDEN}@", LIKE_KEY.sub(HIDDEN, text)))
        text = GIVEN.sub(rf"\g<name>\g<mark>{HIDDEN}", FLAG.sub(rf"\g<name>{HIDDEN}", text))
        if self._host is not None:
            text = self._host.sub(HOST, text)
        return without_home(text)


def _forms(value: str) -> set[str]:
    """How a value may stand in a file: as it is, and between the quotes of JSON, YAML and Python."""
    in_json = (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return {value, *in_json, value.replace("'", "''"), repr(value)[1:-1]}


def known_secrets(environments: Iterable[Mapping[str, str]], named: Iterable[str] = ()) -> set[str]:
    """Values of variables whose names say that they are secret, and of those that a configuration names; passwords of
    ~/.netrc, where wandb keeps its key; and the tokens of the hub and of Ray. The path of a file is none."""
    configured, values = set(named), set()
    for environment in environments:
        values |= {value.strip() for name, value in environment.items() if name in configured or SECRET.search(name)}
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        values |= {password or "" for _, _, password in netrc.netrc().hosts.values()}
    for name in TOKEN_FILES:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            values.add(Path(name).expanduser().read_text().strip())
    return {value for value in values if value and not (value[0] in "/~" and os.path.exists(os.path.expanduser(value)))}
