"""The processes of a run's parts on this machine, found by what they inherit: the run's tag and the part's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psutil

from launch.chaos.faults import DRIVER
from rlsys.system import orphans, parts

ACTOR = "ray::"  # how Ray begins the title of an actor's process
# What a rollout worker has started: each bears its name.
CHILDREN = {"engine": "EngineCore", "worlds": "world_process"}


def find_target(driver: int, target: str) -> list[psutil.Process]:
    """driver: its pid. Those of a part that has several processes, or of all parts whose name begins so (`weights`);
    none where the part is not there at the moment."""
    if target == DRIVER:
        return [psutil.Process(driver)] if psutil.pid_exists(driver) else []
    role, _, number = target.partition(":")
    wanted = f"rollout:{number}" if role in CHILDREN else target
    of_part = [each for each, name in _parts(driver) if name == wanted or name.split(":")[0].split("-")[0] == wanted]
    mark = CHILDREN.get(role)
    return [each for each in of_part if _bears(each, mark)]


def _parts(driver: int) -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        try:
            given = process.environ()
        except psutil.Error:  # not ours to look at, or gone meanwhile
            continue
        if parts.VARIABLE in given and given.get(orphans.VARIABLE, "::").split(":")[1] == str(driver):
            yield process, given[parts.VARIABLE]


def _bears(process: psutil.Process, mark: str | None) -> bool:
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return title.startswith(ACTOR) if mark is None else mark in title


def signal_all(processes: list[psutil.Process], number: int) -> int:
    """How many got it."""
    sent = 0
    for process in processes:
        sent += _try(lambda process=process: process.send_signal(number))  # type: ignore[misc]
    return sent


def _try(act: Callable[[], None]) -> bool:
    try:
        act()
    except psutil.Error:
        return False
    return True
