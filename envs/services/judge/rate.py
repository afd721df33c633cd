"""At most so many requests a minute, and none while the server has asked for a pause."""

from __future__ import annotations

import asyncio


class Rate:
    """`await rate.turn()` before each request, in order of arrival. For one event loop."""

    def __init__(self, spacing_s: float) -> None:
        self._spacing_s = spacing_s
        self._next = 0.0  # on the loop's clock
        self._lock = asyncio.Lock()  # first come, first served; a caller that gives up leaves no gap

    async def turn(self) -> None:
        clock = asyncio.get_running_loop().time
        async with self._lock:
            while True:
                wait = self._next - clock()
                if wait <= 0:
                    break
                await asyncio.sleep(wait)  # a pause may be asked for meanwhile
            self._next = clock() + self._spacing_s

    def pause(self, seconds: float) -> None:
        """Nobody goes for so long: what one request was told holds for all."""
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)
