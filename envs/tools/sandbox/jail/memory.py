"""Memory: what an execution's processes take together, and a buffer that none of them gets.

Memory is only measured here, and limited in `jail/setup.py: limit_resources`. What the processes take is read from the
host's /proc through a handle opened in time.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress

PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECE = 65536


def address_space(proc: int) -> int:
    """Bytes of address space of this process."""
    return int(_read(proc, "self/statm").split()[0]) * PAGE


def private(proc: int, process: str) -> int:
    """Bytes resident and not of a file. Pages that a fork shares with its parent count in both.

    Any thread reports them but one that has ended, as the first may have while others still run: that one says 0.
    A process that ends between the opening and the listing of its folder has no thread left, and holds nothing.
    """
    sizes = [text.split()[1:3] for text in _read_threads(proc, process, "statm")]
    return max(((int(resident) - int(shared)) * PAGE for resident, shared in sizes), default=0)


def children(proc: int, process: str) -> list[str]:
    """Numbers of the processes that it started, as the host sees them. Needs CONFIG_PROC_CHILDREN."""
    return [child for text in _read_threads(proc, process, "children") for child in text.split()]


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


def _read_threads(proc: int, process: str, name: str) -> Iterator[str]:
    """A file of each thread. One that ends after the listing has none, which says nothing of the others: the kernel
    gives its children to another thread."""
    for thread in _threads(proc, process):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield _read(proc, f"{process}/task/{thread}/{name}")


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


class Unshared:
    """A buffer of bytes read from a descriptor, up to a size. The kernel leaves them out of every child."""

    def __init__(self, room: int) -> None:
        self._memory = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_DONTFORK)
        self._room = room
        self.size = 0

    @property
    def full(self) -> bool:
        return self.size >= self._room

    def take(self, fd: int) -> bool:
        """Read once, with no copy elsewhere. False at the end, or when more came than there is room for."""
        with memoryview(self._memory) as view, view[self.size : min(self.size + _PIECE, self._room)] as free:
            num_read = os.readv(fd, [free]) if free else 0
        self.size += num_read
        return num_read > 0 and not self.full

    def send(self, fd: int) -> None:
        offset = 0
        with memoryview(self._memory) as view:
            while offset < self.size:
                with view[offset : self.size] as remaining:
                    offset += os.write(fd, remaining)

    def read(self) -> bytes:
        """A copy, which every later fork can find."""
        return self._memory[: self.size]

    def clear(self) -> None:
        self._memory.madvise(mmap.MADV_DONTNEED)  # zeros, and no page held
        self.size = 0
