"""Memory that a fork does not get."""

from __future__ import annotations

import mmap
import os

_PIECE = 65536


class Unshared:
    """Bytes read from a descriptor, up to a size. The kernel leaves them out of every child."""

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
        with memoryview(self._memory) as whole, whole[self.size : min(self.size + _PIECE, self._room)] as free:
            taken = os.readv(fd, [free]) if free else 0
        self.size += taken
        return taken > 0 and not self.full

    def send(self, fd: int) -> None:
        sent = 0
        with memoryview(self._memory) as whole:
            while sent < self.size:
                with whole[sent : self.size] as rest:
                    sent += os.write(fd, rest)

    def read(self) -> bytes:
        """A copy, which every later fork can find."""
        return self._memory[: self.size]

    def clear(self) -> None:
        self._memory.madvise(mmap.MADV_DONTNEED)  # zeros, and no page held
        self.size = 0
