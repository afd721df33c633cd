"""What a judge is asked and what it says; and how one is asked that may be slow, busy or away."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from envs.services.guard import Guard, ToolBusy, ToolFailed
from envs.services.judge.config import JudgeConfig
from envs.services.stats import ToolStats
from rlsys.types import FailureKind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """JudgeRequest(kind="outcome_math", fields={"question": "2 + 3?", "answers": "5", "answer": "five"})"""

    kind: str  # of envs.services.judge.kinds.KINDS
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict(value="GOOD", accepted=True). `parts` are the tagged texts of action prompting."""

    value: str
    accepted: bool | None = None  # whether it speaks for what was judged; None where it says nothing of the kind
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Judged(verdict=Verdict(value="BAD", accepted=False), text="A repeated query. BAD", cached=False, seconds=1)"""

    verdict: Verdict | None  # None: the text holds no verdict
    text: str
    cached: bool
    seconds: float = 0.0


class Asks(ABC):
    """A judge, in this process or over HTTP (`envs.services.judge.judge`), for one event loop.

    A `Guard` gives every attempt its deadline, its retries and the circuit. Here is what it lacks for scoring: a judge
    that answers nobody is waited for, `outage_s` long, and only then the question fails, with a type. A question that
    fails while others are answered is not an outage: it fails after its attempts.
    """

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._guard: Guard[Any, Any] = Guard("judge", self._answered_call, config.guard)
        self._rate = Rate(config.spacing_s)
        self._slots = asyncio.Semaphore(config.max_concurrent)
        self._answered = 0.0  # when it last answered anybody, on the loop's clock
        self._reason = ""  # of the last failed attempt since then
        self._warned = False
        self._asked = self._cached = self._unparsable = 0

    async def ask(self, request: JudgeRequest, seed: int = 0) -> Judged:
        """Seed 0 is greedy, any other one samples. Raises ToolFailed when the judge is out, BadRequest."""
        started = time.monotonic()
        self._asked += 1
        judged = await self._judged(request, seed)
        self._cached += judged.cached
        self._unparsable += judged.verdict is None
        return replace(judged, seconds=time.monotonic() - started)

    def stats(self) -> ToolStats:
        """With what the guard does not see: the cache in front of it, and, as errors, answers without a verdict."""
        stats = self._guard.stats()
        errors = dict(stats.errors) | ({"unparsable": self._unparsable} if self._unparsable else {})
        return replace(stats, calls=self._asked, cache_hits=self._cached, errors=errors)

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _judged(self, request: JudgeRequest, seed: int) -> Judged:
        """Asked by `_patiently`, unless the answer is known."""

    @abstractmethod
    async def _call(self, query: Any) -> Any:
        """One attempt to answer what `_judged` asks patiently."""

    async def _patiently(self, query: Any) -> Any:
        """What `_call` answers. Raises ToolFailed."""
        clock = asyncio.get_running_loop().time
        began = clock()
        asking = asyncio.create_task(self._persist(query))
        try:
            while not asking.done():
                left = self._config.outage_s - (clock() - max(began, self._answered))
                if left <= 0:
                    detail = f"no answer to anybody for {self._config.outage_s:g} s: {self._reason or 'not tried'}"
                    raise ToolFailed(FailureKind.INFRA, "judge", detail)
                await asyncio.wait({asking}, timeout=left)
            return asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _persist(self, query: Any) -> Any:
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
                        raise ToolFailed(failed.failure.kind, "judge", cause) from failed
                    if not self._warned:
                        log.warning("the judge does not answer (%s): scoring waits for it", self._reason or failed)
                    self._warned = True

    async def _answered_call(self, query: Any) -> Any:
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
            log.warning("the judge answers again")
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
