"""Versions that every engine finds where the ranks put them: nothing is carried, and the driver tidies up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rlsys.channels.base import Published, WeightChannel


class Direct:
    """As `actors.carriers.Carriers`, for a channel that is not `carried`."""

    def __init__(self, channel: WeightChannel) -> None:
        self._channel = channel

    async def ensure(self, nodes: Iterable[str]) -> None: ...

    def sending(self) -> WeightChannel:
        return self._channel

    async def bring(self, published: Published, node: str) -> Published:
        return published

    async def keep(self, version: int) -> None:
        await asyncio.to_thread(self._channel.keep, version)

    def moved(self) -> tuple[int, float]:
        return 0, 0.0

    async def stop(self) -> None:
        await asyncio.to_thread(self._channel.close)
