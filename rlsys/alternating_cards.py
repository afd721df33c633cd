"""Cards on which the learner's ranks and the engines work in alternation (`cluster.placement=sleep`): whose turn it is.

    hold(LEARNER)    an update, an export, a checkpoint: the engines sleep from before its beginning to its end
    hold(ENGINES)    a start, a delivery: the ranks' states stay in host memory to its end
    wish()           groups that are awaited: the engines have every moment in which the learner holds nothing

Generation holds nothing: the learner may take the cards in the middle of an answer, which continues afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum


class Side(StrEnum):
    LEARNER = "learner"
    ENGINES = "engines"


Give = Callable[[Side], Awaitable[None]]


class AlternatingCards:
    """Of one event loop. Each side may hold the cards several times at once, and inside its own holds; never inside the
    other's, which would wait for ever."""

    def __init__(self) -> None:
        """Each side has its own cards, and every hold is granted at once, until `begin`."""
        self._give: Give | None = None
        self._side: Side | None = None  # None: before the first turn, and while it changes
        self._holds = 0
        self._wishes = 0
        self._free = asyncio.Event()  # no one holds the cards
        self._changing = asyncio.Lock()
        self._change_s = 0.0  # since the last row

    def begin(self, give: Give) -> None:
        """The sides share their cards. give: brings one side off them and the other onto them; may be repeated."""
        self._give = give

    @property
    def alternate(self) -> bool:
        """Whether the sides use the same ones."""
        return self._give is not None

    @asynccontextmanager
    async def hold(self, side: Side) -> AsyncIterator[None]:
        """Inside, the cards are that side's. Raises what bringing it onto them raises."""
        if self._give is None:
            yield
            return
        await self._take(side)
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._free.set()
        # Not after an error: the side that failed may be unable to leave.
        await self._grant_wish()

    @asynccontextmanager
    async def wish(self) -> AsyncIterator[None]:
        """Inside, the engines have the cards whenever the learner does not hold them."""
        self._wishes += 1
        try:
            await self._grant_wish()
            yield
        finally:
            self._wishes -= 1

    def row(self) -> dict[str, float]:
        """Seconds since the last row in which neither side worked."""
        if self._give is None:
            return {}
        seconds, self._change_s = self._change_s, 0.0
        return {"placement/change_s": seconds}

    async def _take(self, side: Side) -> None:
        if self._side is not side:
            async with self._changing:
                while self._side is not side:
                    await self._until_free()
                    await self._change(side)
        self._holds += 1

    async def _grant_wish(self) -> None:
        if self._is_owed():
            async with self._changing:
                if self._is_owed():
                    await self._change(Side.ENGINES)

    def _is_owed(self) -> bool:
        wished = self._give is not None and self._wishes > 0
        return wished and not self._holds and self._side is not Side.ENGINES

    async def _until_free(self) -> None:
        while self._holds:
            self._free.clear()
            await self._free.wait()

    async def _change(self, side: Side) -> None:
        assert self._give is not None
        self._side, began = None, asyncio.get_running_loop().time()
        await self._give(side)
        self._side = side
        self._change_s += asyncio.get_running_loop().time() - began
