"""A model that is asked over a network, and may be slow, busy or away for a while.

A `Guard` gives every attempt its deadline, its retries and the circuit. Here is what it lacks for a judge or a teacher:
one that answers nobody is waited for, `outage_s` long, and only then the question fails, with a type. A question that
fails while others are answered is not an outage: it fails after its attempts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from envs.services.guard import Guard, GuardConfig, ToolBusy, ToolFailed
from envs.services.stats import ToolStats
from rlsys.types import FailureKind

log = logging.getLogger(__name__)

Q = TypeVar("Q")
R = TypeVar("R")


class Patience(Protocol):
    """The keys of it, in a config."""

    @property
    def deadline_s(self) -> float: ...
    @property
    def outage_s(self) -> float: ...
    @property
    def max_concurrent(self) -> int: ...
    @property
    def spacing_s(self) -> float: ...
    @property
    def guard(self) -> GuardConfig: ...


class Patient(Generic[Q, R]):
    """`await patient(query)` is what `call` answers. For one event loop."""

    def __init__(self, name: str, call: Callable[[Q], Awaitable[R]], config: Patience) -> None:
        self._name = name  # in failures
        self._call = call
        self._config = config
        self._guard: Guard[Q, R] = Guard(name, self._answered_call, config.guard)
        self._rate = Rate(config.spacing_s)
        self._slots = asyncio.Semaphore(config.max_concurrent)
        self._answered = 0.0  # when it last answered anybody, on the loop's clock
        self._reason = ""  # of the last failed attempt since then
        self._warned = False

    def stats(self) -> ToolStats:
        stats = self._guard.stats()
        return replace(stats, outage=self._reason[:200] or "no answer") if self._warned else stats

    async def __call__(self, query: Q) -> R:
        """What `_call` answers. Raises ToolFailed."""
        clock = asyncio.get_running_loop().time
        began = clock()
        asking = asyncio.create_task(self._persist(query))
        try:
            while not asking.done():
                left = self._config.outage_s - (clock() - max(began, self._answered))
                if left <= 0:
                    detail = f"no answer to anybody for {self._config.outage_s:g} s: {self._reason or 'not tried'}"
                    raise ToolFailed(FailureKind.INFRA, self._name, detail)
                await asyncio.wait({asking}, timeout=left)
            return asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _persist(self, query: Q) -> R:
        clock = asyncio.get_running_loop().time
        async with self._slots:
            began = clock()
            while True:
                tried = clock()
                try:
                    return await self._guard(query)
                except ToolFailed as failed:
                    # To be told to come back is no fault of the question either.
                    busy = isinstance(failed.__cause__, ToolBusy) and clock() - began < self._config.outage_s
                    if failed.failure.kind is FailureKind.DATA or (self._answered > tried and not busy):
                        cause = str(failed.__cause__ or failed)[:500]  # a timeout's own text: the guard's is longer
                        raise ToolFailed(failed.failure.kind, self._name, cause) from failed
                    if not self._warned:
                        why = self._reason or failed
                        log.warning("the %s does not answer (%s): what needs it waits", self._name, why)
                    self._warned = True

    async def _answered_call(self, query: Q) -> R:
        await self._rate.turn()
        try:
            async with asyncio.timeout(self._config.deadline_s):
                result = await self._call(query)
        except TimeoutError:
            self._reason = f"no answer within {self._config.deadline_s:g} s"
            raise TimeoutError(self._reason) from None
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"
            if isinstance(error, ToolBusy):  # what one was told holds for all
                self._rate.pause(min(error.after_s, self._config.deadline_s))
            raise
        self._answered = asyncio.get_running_loop().time()
        if self._warned:
            log.warning("the %s answers again", self._name)
        self._reason, self._warned = "", False
        return result


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
        """Nobody goes for so long: what one request was told holds for all."""
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)
