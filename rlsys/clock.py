"""The deadline of an episode, whose clock stands still while the episode waits for its turn.

`async with deadline(300):` around the episode, and `with stopped():`, however deep inside, around a wait that is none
of its own doing: for a seat in the engine, or for others to leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    timeout: asyncio.Timeout
    began: float
    waited_s: float = 0.0  # while it stood still

    @property
    def ran_s(self) -> float:
        return asyncio.get_running_loop().time() - self.began - self.waited_s


_CURRENT: ContextVar[Clock | None] = ContextVar("clock", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[Clock]:
    """Raises TimeoutError, as `asyncio.timeout` does, once its clock has run for so long."""
    async with asyncio.timeout(seconds) as timeout:
        clock = Clock(timeout, asyncio.get_running_loop().time())
        before = _CURRENT.set(clock)
        try:
            yield clock
        finally:
            _CURRENT.reset(before)


@contextmanager
def stopped() -> Iterator[None]:
    """What is waited for in here is no part of the deadline around it."""
    clock = _CURRENT.get()
    when = clock.timeout.when() if clock is not None and not clock.timeout.expired() else None
    if clock is None or when is None:  # without a deadline, too late, or it stands still already
        yield
        return
    loop = asyncio.get_running_loop()
    since = loop.time()
    clock.timeout.reschedule(None)
    try:
        yield
    finally:
        waited = loop.time() - since
        clock.waited_s += waited
        clock.timeout.reschedule(when + waited)
