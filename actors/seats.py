"""The seats of an engine: as many requests as it samples at once. The others wait here and not in it."""

from __future__ import annotations

import asyncio
from collections import deque


class Seats:
    """Given in order of arrival, but to those with priority before all others. Belongs to one event loop."""

    def __init__(self, free: int) -> None:
        self.free = free
        self._priority: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    async def acquire(self, *, priority: bool = False) -> None:
        if self.free:  # then nobody waits
            self.free -= 1
            return
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._priority if priority else self._others).append(seat)
        try:
            await seat
        except asyncio.CancelledError:
            if seat.done() and not seat.cancelled():  # it came at the moment at which the caller was cancelled
                self.release()
            raise

    def release(self) -> None:
        for queue in (self._priority, self._others):
            while queue:
                seat = queue.popleft()
                if not seat.done():  # else its caller has gone
                    seat.set_result(None)
                    return
        self.free += 1
