"""What made a run's numbers: versions, the command, the machine. In `summary.json` and in the card of a model."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import shlex
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from rlsys import VERSION

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("vllm", "deepspeed", "ray", "torch", "transformers")
GIT_S = 5.0


def versions() -> dict[str, str | None]:
    """Of what numbers depend on; of rlsys with the commit where it is a checkout ("+changes": that was edited)."""
    own = f"{VERSION} ({commit})" if (commit := commit_of(ROOT)) else VERSION
    return {"rlsys": own, "python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}}


def origin() -> dict[str, str]:
    """Where and by which command."""
    return {"host": socket.gethostname(), "command": shlex.join(["rlsys", *sys.argv[1:]])}


@cache
def commit_of(folder: Path) -> str | None:
    if not (folder / ".git").exists():  # a repository further up is somebody else's
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True)
        return done.stdout.strip() or None
    return None


@cache
def _version(name: str) -> str | None:
    """vLLM's CPU build is a distribution of its own name."""
    for candidate in (name, f"{name}-cpu"):
        try:
            return importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
