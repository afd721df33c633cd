"""When a service may be asked: whether it answers at all, and how often it wants to be asked."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

log = logging.getLogger(__name__)


class Circuit:
    """Closed: every call passes. Open: no call passes for `open_s`, then one trial call decides by its result."""

    def __init__(self, name: str, max_failures: int, open_s: float) -> None:
        self._name = name
        self._max_failures = max_failures
        self._open_s = open_s
        self._failures = 0  # in a row
        self._trial_at = 0.0  # on the loop's clock
        self._trying = False  # is the one call on its way?
        self._changed = asyncio.Event()
        self.open = False
        self.opened = 0  # how often
        self.answered_at = 0.0  # when it last worked, on the loop's clock
        self.reason = ""  # of the last failed attempt since then
        self.warned = False

    async def admit(self, give_up: float | None) -> bool:
        """Wait for permission to call; True makes the call the trial. Raises TimeoutError at `give_up`."""
        clock = asyncio.get_running_loop().time
        while self.open:
            now = clock()
            if not self._trying and now >= self._trial_at:
                self._trying = True
                return True
            if give_up is not None and now >= give_up:
                raise TimeoutError
            ends = [at for at in (give_up, None if self._trying else self._trial_at) if at is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(ends, default=None)):
                    await self._changed.wait()
        return False

    def report(self, works: bool | None, *, trial: bool) -> None:
        """How an admitted call ended; None when it was cancelled, which says nothing about the tool."""
        if works:
            self._failures, self.open = 0, False
            self.answered_at = asyncio.get_running_loop().time()
            if self.warned:
                log.warning("the %s answers again", self._name)
            self.reason, self.warned = "", False
        elif works is False:
            self._failures += 1
            if trial or (not self.open and self._failures >= self._max_failures):
                self.opened += not self.open
                self.open = True
                self._trial_at = asyncio.get_running_loop().time() + self._open_s
        self._trying = self._trying and self.open and not trial
        self._changed.set()  # the waiting calls check the state again
        self._changed = asyncio.Event()

    def warn(self) -> None:
        """Once an outage: what needs the service waits for it."""
        if not self.warned:
            log.warning("the %s does not answer (%s): what needs it waits", self._name, self.reason)
        self.warned = True


class Rate:
    """At most so many requests a minute, and none while the server has asked for a pause.

    `await rate.turn()` before each request, in order of arrival. For one event loop.
    """

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
        """Start no request for `seconds`: a server's Retry-After to one request holds for all."""
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)
