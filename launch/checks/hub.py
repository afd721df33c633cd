"""A model that is named as the hub names it: whether it can be had is said at once, not after a minute of retries."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any

from launch.checks.packaged import PACKAGED, describe_fetch, folder_of, is_here
from rlsys.errors import BadInput

OFFLINE = "HF_HUB_OFFLINE"
DEADLINE_S = 5.0  # for a small file, at the start of a command: without it less is checked
MOST_CONFIG_BYTES = 1 << 20  # config.json has a few thousand


def find_cached(name: str) -> Path | None:
    """The folder of a downloaded model, the newest; found without loading the hub's library, which reads OFFLINE."""
    if name in PACKAGED:
        return folder_of(name) if is_here(name) else None
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    snapshots = (cache / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/config.json")
    newest = max(snapshots, key=lambda path: path.lstat().st_mtime, default=None)
    return None if newest is None else newest.parent


@cache
def fetch_config(name: str) -> Mapping[str, Any] | None:
    """config.json alone, a few kilobytes, kept nowhere; None where it cannot be had."""
    if is_offline() or _unreachable() is not None:
        return None
    request = urllib.request.Request(f"{_endpoint()}/{name}/resolve/main/config.json")
    if token := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            config = json.loads(answer.read(MOST_CONFIG_BYTES))
    except (OSError, ValueError, HTTPException):  # no such model, one for members alone, no JSON
        return None
    return config if isinstance(config, dict) else None


def require(name: str, where: str) -> str | None:
    """Raises BadInput for a model that is neither here nor to be had. `where` begins the line: "model.path='a/b'".

    Where only the copy of an earlier download is to be had, the hub is not asked again by any process of this run: what
    to say about it is returned. A model of a package is no hub's: the run fetches it itself.
    """
    if name in PACKAGED:
        return None
    cached = find_cached(name)
    if is_offline():
        if cached is None:
            raise BadInput(
                f"no folder, not downloaded before, and {OFFLINE} is set: nothing is downloaded", where=where
            )
        return None
    reason = _unreachable()
    if reason is None:
        return None
    if cached is None:
        raise BadInput(
            f"no folder, not downloaded before, and {reason}; download it elsewhere, give its folder", where=where
        )
    os.environ[OFFLINE] = "1"
    return f"{reason}: the copy of {name} in {cached} is used ({OFFLINE}=1 says so from the start)"


def explain_missing(name: str) -> str:
    """Why a model that is not on this machine cannot be had by it either; "" where the hub has one of that name."""
    if name in PACKAGED:
        return f"the run fetches {describe_fetch(name)}"
    if is_offline():
        return f"{OFFLINE} is set, nothing is downloaded"
    if (reason := _unreachable()) is not None:
        return reason
    return "" if fetch_config(name) is not None else f"{_endpoint()} gives no config.json of that name"


def is_offline() -> bool:
    """Whether nothing may be downloaded."""
    return os.environ.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE")


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _unreachable() -> str | None:
    """Why the hub cannot be reached; None where it answers, whatever it says."""
    endpoint = _endpoint()
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=DEADLINE_S).close()
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)
        return f"{endpoint} cannot be reached ({getattr(cause, 'strerror', None) or cause})"
    return None
