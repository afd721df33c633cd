"""Deadlines of what others answer, judged by a loop that had time to listen.

While an event loop is busy answers pile up unheard, and so do deadlines. A timer that fires late says that the loop was
busy and nothing about whoever was asked: what has arrived by then was in time, and what is on its way is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

ON_TIME_S = 0.1  # a timer that fires later than this was held up
LISTEN_S = 5.0  # at most, once more


async def within(answer: Awaitable[T], timeout_s: float) -> T:
    """The answer. Raises TimeoutError when there is none in time; then it is cancelled."""
    waiting = asyncio.ensure_future(answer)
    due = time.monotonic() + timeout_s
    try:
        await asyncio.wait({waiting}, timeout=timeout_s)
        late = time.monotonic() - due
        if not waiting.done() and late > ON_TIME_S:
            await asyncio.wait({waiting}, timeout=min(late, LISTEN_S))
        if not waiting.done():
            raise TimeoutError
        return waiting.result()
    finally:
        waiting.cancel()
