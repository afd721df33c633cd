"""How long the driver's event loop stood still: everybody whom it serves has waited for as long."""

from __future__ import annotations

import asyncio
import time

EVERY_S = 0.02


class Pulse:
    def __init__(self) -> None:
        self._longest: float | None = None

    async def beat(self) -> None:
        """Beside everything else, for as long as the loop runs."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(EVERY_S)
            late = time.monotonic() - before - EVERY_S
            self._longest = max(self._longest or 0.0, late)

    def row(self) -> dict[str, float]:
        """Since the last row; empty where nothing beat."""
        longest, self._longest = self._longest, None
        return {} if longest is None else {"driver/longest_block_s": longest}
