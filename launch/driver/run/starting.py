"""What the engines of a run are at while they start: a minute on a laptop, many on GPUs that compile and capture."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

from launch.driver.observe.progress import Progress

T = TypeVar("T")
LOOK_S = 1.0  # between two looks


class Starts(Protocol):
    """The part of a pool that says it."""

    async def describe_start(self) -> str: ...


async def watch_start(pool: Starts, starting: Awaitable[T], progress: Progress) -> T:
    """Await it, and show what the engines are at."""
    work = asyncio.ensure_future(starting)
    try:
        while not (await asyncio.wait({work}, timeout=LOOK_S))[0]:
            progress.detail(await pool.describe_start())
        return work.result()
    finally:
        work.cancel()
