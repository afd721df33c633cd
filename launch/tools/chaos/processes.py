"""The processes that a fault is meant for, on one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil

from launch.driver.incidents.processes import processes_of
from launch.tools.chaos.faults import DRIVER
from rlsys.system.parts import owner_of

ACTOR = "ray::"  # how Ray begins the title of an actor's process
# What a rollout worker has started: each bears its name.
CHILDREN = {"engine": "EngineCore", "worlds": "actors.env_server"}
AGENTS, KEEPER = "agents", "from keeping import keeper"  # in the command line of the process that starts them


def find_target(owner: str, target: str) -> list[psutil.Process]:
    """owner: how the tag of the driver begins. Those of a part that has several processes, or of all parts whose name
    begins so (`weights`); none where the part is not on this machine at the moment."""
    if target == DRIVER:
        pid = int(owner.split(":")[1])
        with suppress(psutil.NoSuchProcess):
            return [psutil.Process(pid)] if owner_of(pid) == owner else []
        return []
    role, _, number = target.partition(":")
    if role == AGENTS:
        return list(_agents_of(find_target(owner, f"worlds:{number}")))
    part = f"rollout:{number}" if role in CHILDREN else target
    processes = processes_of(owner)
    of_part = [process for process, name, _ in processes if name == part or name.split(":")[0].split("-")[0] == part]
    mark = CHILDREN.get(role)
    return [process for process in of_part if _title_matches(process, mark)]


def _agents_of(worlds: Iterable[psutil.Process]) -> Iterator[psutil.Process]:
    """They inherit nothing that tells whose they are, for they are not to know it."""
    for process in worlds:
        with suppress(psutil.Error):
            for keeper in (child for child in process.children() if _title_matches(child, KEEPER)):
                yield from (keeper, *keeper.children(recursive=True))


def _title_matches(process: psutil.Process, mark: str | None) -> bool:
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return title.startswith(ACTOR) if mark is None else mark in title


def signal_all(processes: list[psutil.Process], number: int) -> int:
    """How many got it; those that are gone do not count."""
    count = 0
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
            count += 1
    return count
