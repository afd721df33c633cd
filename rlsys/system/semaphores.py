"""Named semaphores of a run's processes bear the tag of its owner, so that those of killed processes can be removed.

A process that is killed cannot unlink what it made in /dev/shm, and the name that Python gives says nothing of it. An
EngineCore makes one, through a library that it imports.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

VARIABLE = "RLSYS_OWNER"  # of the environment of every process of a run
FOLDER = Path("/dev/shm")
PREFIX = "sem.rlsys-"  # the system puts "sem." before a name


def tag_own() -> None:
    """Name the semaphores of this process, and of those that it spawns from now on, after the run's owner."""
    owner = os.environ.get(VARIABLE)
    if owner:
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # Python offers no other way
        config["semprefix"] = f"/{PREFIX.removeprefix('sem.')}{owner}"  # children get a copy


def find_left_behind(gone: Callable[[str], bool]) -> list[Path]:
    """The files of semaphores whose owner is `gone`."""
    found = FOLDER.glob(f"{PREFIX}*")
    return [path for path in found if gone(path.name.removeprefix(PREFIX).rpartition("-")[0])]


def remove(gone: Callable[[str], bool]) -> None:
    for path in find_left_behind(gone):
        path.unlink(missing_ok=True)
