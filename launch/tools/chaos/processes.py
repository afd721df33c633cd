"""The processes that a fault is meant for, on one machine."""

from __future__ import annotations

from contextlib import suppress

import psutil

from launch.driver.incidents.processes import processes_of
from launch.tools.chaos.faults import DRIVER
from rlsys.system.parts import owner_of

ACTOR = "ray::"  # how Ray begins the title of an actor's process
# What a rollout worker has started: each bears its name.
CHILDREN = {"engine": "EngineCore", "worlds": "world_process"}


def find_target(owner: str, target: str) -> list[psutil.Process]:
    """owner: how the tag of the driver begins. Those of a part that has several processes, or of all parts whose name
    begins so (`weights`); none where the part is not on this machine at the moment."""
    if target == DRIVER:
        pid = int(owner.split(":")[1])
        with suppress(psutil.NoSuchProcess):
            return [psutil.Process(pid)] if owner_of(pid) == owner else []
        return []
    role, _, number = target.partition(":")
    wanted = f"rollout:{number}" if role in CHILDREN else target
    named = processes_of(owner)
    of_part = [each for each, name, _ in named if name == wanted or name.split(":")[0].split("-")[0] == wanted]
    mark = CHILDREN.get(role)
    return [each for each in of_part if _bears(each, mark)]


def _bears(process: psutil.Process, mark: str | None) -> bool:
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return title.startswith(ACTOR) if mark is None else mark in title


def signal_all(processes: list[psutil.Process], number: int) -> int:
    """How many got it; those that are gone do not count."""
    sent = 0
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
            sent += 1
    return sent
