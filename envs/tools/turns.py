"""Fair turns at a few places: who has used the least goes first, but for whom has waited longer than it saves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Hands out `places` to callers of one event loop.

    A caller waits for as long as others finish. Only when no turn has ended for `stalled_s` does it give up.
    """

    def __init__(self, places: int, stalled_s: float) -> None:
        self._free = places
        self._stalled_s = stalled_s
        self._moved = 0.0  # when a turn last began or ended, on the loop's clock
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._arrivals = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for *_, future in self._waiting)

    @asynccontextmanager
    async def turn(self, used_s: float) -> AsyncIterator[None]:
        """Hold a place. `used_s`: what the caller's episode has used of the places. Raises TimeoutError."""
        if self._free:
            self._free -= 1
            self._moved = asyncio.get_running_loop().time()
        else:
            await self._wait(used_s)
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, used_s: float) -> None:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        # Whoever has waited for longer than the difference in use goes first: new ones cannot keep a caller out.
        heapq.heappush(self._waiting, (used_s + loop.time(), next(self._arrivals), place))
        try:
            while not place.done():
                left_s = self._moved + self._stalled_s - loop.time()
                if left_s <= 0:
                    raise TimeoutError
                await asyncio.wait([place], timeout=left_s)
        except BaseException:
            if place.done():  # it was handed over while the caller was cancelled
                self._hand_on()
            place.cancel()
            raise

    def _hand_on(self) -> None:
        self._moved = asyncio.get_running_loop().time()
        while self._waiting:
            *_, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
