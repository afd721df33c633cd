"""The processes of a run's parts on this machine, found by what they inherit: the run's tag and the part's name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rlsys.system import parts
from rlsys.system.parts import owner_of

DRIVER = "driver"
STATES = {"R": "running", "S": "sleeping", "D": "waiting for a disk", "T": "stopped", "t": "traced", "Z": "zombie"}


KINDS = {  # by a mark in the command line
    "EngineCore": "engine",
    "actors.env_server": "environments",
    "resource_tracker": "resource tracker",
    "rlsys/system/memory": "lock of the weights",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartProcess:
    part: str  # "rollout:0"
    pid: int
    title: str  # what it is: `kind_of`
    log: str  # the file that it writes to; "" where that is no file
    errors: str = ""


def processes_of(owner: str) -> Iterator[tuple[psutil.Process, str, Mapping[str, str]]]:
    """Each with the name of its part and its environment. owner: how the tag of the driver begins."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:  # not ours to look at, or gone meanwhile
            continue
        if parts.VARIABLE in environment and environment.get(parts.DRIVER, "").startswith(owner):
            yield process, environment[parts.VARIABLE], environment


def list_parts(owner: str) -> list[PartProcess]:
    """The processes of the run's parts that exist now, sorted by the part's name."""
    processes = []
    for process, part, _ in processes_of(owner):
        with suppress(psutil.Error):
            title = kind_of(" ".join(process.cmdline()) or process.name())
            log, errors = _written(process.pid, 1), _written(process.pid, 2)
            processes.append(PartProcess(part=part, pid=process.pid, title=title, log=log, errors=errors))
    return sorted(processes, key=lambda entry: (entry.part, entry.pid))


def kind_of(command: str) -> str:
    """Of a process, by its command line: "RolloutWorker", "engine", "environments"."""
    kind = next((name for mark, name in KINDS.items() if mark in command), "")
    return kind or command.removeprefix("ray::").split(" ")[0].rpartition("/")[2][:40]


def environments(owner: str) -> list[Mapping[str, str]]:
    """Of this process and the parts: what is secret in them must not be shown."""
    return [dict(os.environ), *(environment for _, _, environment in processes_of(owner))]


def state_of(pid: int) -> str:
    """ "stopped", "sleeping" ..; "gone" where there is no such process."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone"
    return STATES.get(letter, letter)


def find_driver(run: Path) -> int | None:
    """The process that holds a run directory's lock open, and has parts where several do. None where there is none that
    we may look at."""
    lock, pids = run.resolve() / ".lock", list[int]()
    for process in psutil.process_iter():
        with suppress(OSError):
            for descriptor in os.scandir(f"/proc/{process.pid}/fd"):
                with suppress(OSError):
                    if os.readlink(descriptor.path) == str(lock) and process.pid != os.getpid():
                        pids.append(process.pid)
    with_parts = (pid for pid in pids if list_parts(owner_of(pid)))
    return next(with_parts, pids[0] if pids else None)


def _written(pid: int, number: int) -> str:
    """The file behind a descriptor; "" where it is none."""
    with suppress(OSError):
        target = os.readlink(f"/proc/{pid}/fd/{number}")
        return target if target.startswith("/") and os.path.isfile(target) else ""
    return ""
