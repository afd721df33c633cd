"""What software a run is made of: versions, the commit or a digest of the source, and how it differs from the lock."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlsys import OURS, VERSION

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "launch" / "locks"
LIBRARIES = ("vllm", "deepspeed", "ray", "torch", "transformers")
GIT_S = 5.0  # of a file system that hangs: a run does without the commit
EDITED = "+changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Of one machine."""

    python: str
    rlsys: str  # as `rlsys_version`
    lock: str | None  # the lock that this environment was made from, "cpu.txt"
    locked: int  # packages in it
    differs: Mapping[str, tuple[str, str | None]]  # (in the lock, installed) by package


def look_at_software() -> Software:
    locks = {path.name: read_lock(path.read_text()) for path in sorted(LOCKS.glob("*.txt"))}
    lock, differs = closest_lock(locks, installed_packages())
    locked = 0 if lock is None else len(locks[lock])
    return Software(python=platform.python_version(), rlsys=rlsys_version(), lock=lock, locked=locked, differs=differs)


def rlsys_version() -> str:
    """With the commit where it is a checkout ("+changes": that was edited)."""
    return f"{VERSION} ({commit})" if (commit := commit_of(ROOT)) else VERSION


def versions() -> dict[str, str | None]:
    """Of what numbers depend on."""
    libraries = {name: _version(name) for name in LIBRARIES}
    return {"rlsys": rlsys_version(), "python": platform.python_version(), **libraries}


def describe_software() -> dict[str, Any]:
    """As `run.json` has it, with the whole commit, the lock and what differs from it: {"torch": ["2.13.0 (lock)",
    "2.12.0"]}, null where a package is not installed."""
    software, commit = look_at_software(), commit_of(ROOT, digits=40)
    lock = None if software.lock is None else {"file": software.lock, "sha256": _digest(LOCKS / software.lock)}
    return {
        "version": VERSION,
        "commit": None if commit is None else commit.removesuffix(EDITED),
        "dirty": None if commit is None else commit.endswith(EDITED),
        "source": source_digest(ROOT) if commit is None else None,
        "python": software.python,
        "platform": f"{platform.system()}-{platform.release()}-{platform.machine()}",
        "lock": lock,
        "packages": {name: _version(name) for name in LIBRARIES},
        "differs": {name: [f"{locked} (lock)", version] for name, (locked, version) in software.differs.items()},
    }


def read_lock(text: str) -> dict[str, str]:
    """The exact version of each package, by its canonical name."""
    pins = (line.partition("#")[0].strip().partition("==") for line in text.splitlines())
    return {canonical(name): version for name, _, version in pins if version}


def closest_lock(
    locks: Mapping[str, Mapping[str, str]], installed: Mapping[str, str]
) -> tuple[str | None, dict[str, tuple[str, str | None]]]:
    """The lock that this environment was made from, and as `Software.differs` where it differs from it. Packages that
    the lock does not name are not looked at."""
    differences = {
        name: {
            package: (version, installed.get(package))
            for package, version in lock.items()
            if installed.get(package) != version
        }
        for name, lock in locks.items()
    }
    if not differences:
        return None, {}
    name = min(differences, key=lambda file: len(differences[file]))
    return name, differences[name]


def installed_packages() -> dict[str, str]:
    """Version by canonical name; of two distributions of one name the one that Python finds first."""
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            packages.setdefault(canonical(name), distribution.version)
    return packages


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def source_digest(root: Path) -> str:
    """SHA-256 over the names and the content of the packages' files: equal where the code is equal."""
    digest = hashlib.sha256()
    paths = (path for package in OURS for path in (root / package).rglob("*"))
    for path in sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


@cache
def commit_of(folder: Path, *, digits: int = 12) -> str | None:
    """With "+changes" behind it where files differ from it; None where the folder is no checkout."""
    if not (folder / ".git").exists():  # a repository further up is not ours
        return None
    command = ["git", "-C", str(folder), "describe", "--always", f"--abbrev={digits}", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        child = subprocess.run(
            [*command, f"--dirty={EDITED}"], capture_output=True, text=True, timeout=GIT_S, check=True
        )
        return child.stdout.strip() or None
    return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _version(name: str) -> str | None:
    """vLLM's CPU build is a distribution with another name."""
    for candidate in (name, f"{name}-cpu"):
        try:
            return importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
