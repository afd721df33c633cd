"""Memory of an execution's processes together, read from the host's /proc through a handle opened in time."""

from __future__ import annotations

import os

PAGE = os.sysconf("SC_PAGE_SIZE")


def address_space(proc: int) -> int:
    """Bytes of address space of this process."""
    return int(_read(proc, "self/statm").split()[0]) * PAGE


def private(proc: int, process: str) -> int:
    """Bytes resident and not of a file. Pages that a fork shares with its parent count in both.

    Any thread tells them but one that has ended, as the first may have while others go on: that one says 0.
    """
    found = [_read(proc, f"{process}/task/{thread}/statm").split()[1:3] for thread in _threads(proc, process)]
    return max((int(resident) - int(shared)) * PAGE for resident, shared in found)


def children(proc: int, process: str) -> list[str]:
    """Numbers of the processes that it started, as the host sees them. Needs CONFIG_PROC_CHILDREN."""
    found: list[str] = []
    for thread in _threads(proc, process):
        found += _read(proc, f"{process}/task/{thread}/children").split()
    return found


def growth(proc: int, base: int) -> int:
    """Bytes that all descendants of this process hold beyond the `base` that each was born with."""
    total, waiting = 0, ["self"]
    while waiting:
        process = waiting.pop()
        try:
            waiting += children(proc, process)
            total += 0 if process == "self" else max(0, private(proc, process) - base)
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
    return total


def _threads(proc: int, process: str) -> list[str]:
    directory = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.listdir(directory)
    finally:
        os.close(directory)


def _read(proc: int, path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, 65536).decode()
    finally:
        os.close(fd)
