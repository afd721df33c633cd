"""What stands between an environment and a tool that can die, hang or lie.

One `Guard` per tool and event loop:

    call -> cache? -> the same query in flight? share it -> a free slot? -> circuit closed? -> attempt, deadline, retry

A call waits for a slot and for the circuit at most `GuardConfig.patience_s` in all, then it fails with a type. Calls
keep their slot while they wait for the circuit, so that no more than `max_concurrent` start when the tool comes back,
and only one of them tries whether it did. Retries follow the exception: ToolRefused is the tool's answer and final;
whatever else a call raises may be mended by another attempt.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from cachetools import LRUCache

from envs.services.stats import ToolStats, latency_bucket
from rlsys.errors import require_bounds
from rlsys.rollout import EpisodeBroken
from rlsys.seeds import derive
from rlsys.types import Failure, FailureKind

Q = TypeVar("Q")
R = TypeVar("R")


class ToolRefused(Exception):
    """Raised by a call: the tool works and says that this request is bad. Not retried, no mark against the tool."""


class ToolBusy(Exception):
    """Raised by a call: the tool asks to come back in `after_s` seconds (HTTP's 429 and 503 with Retry-After)."""

    def __init__(self, message: str, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


class ToolFailed(EpisodeBroken):
    """The tool gave nothing. An environment lets it pass, and the episode ends with this `failure`."""

    def __init__(self, kind: FailureKind, where: str, detail: str) -> None:
        super().__init__(Failure(kind=kind, where=where, detail=detail))


@dataclass(frozen=True, kw_only=True)
class GuardConfig:
    """Timeouts, retries, circuit breaker, cache and concurrency of the calls to a tool."""

    deadline_s: float = 30.0
    """Timeout of one attempt, in seconds."""
    attempts: int = 3
    """Number of attempts at one call, counting the first."""
    backoff_s: float = 0.5
    """Mean delay before the second attempt, in seconds, with a jitter of half to one and a half times. It doubles for
    each further attempt, and is longer if the server asks for it (Retry-After)."""
    breaker_failures: int = 5
    """Number of consecutive failed attempts that open the circuit breaker."""
    breaker_s: float = 10.0
    """Time that the circuit breaker stays open before one call tries again, in seconds."""
    cache_size: int = 4096
    """Number of results in the cache, least recently used evicted first. 0: no cache."""
    max_concurrent: int = 64
    """Number of calls in flight at once; further calls queue."""

    def __post_init__(self) -> None:
        self.check_bounds("guard.")

    def check_bounds(self, prefix: str) -> None:
        require_bounds(self, prefix, "above 0", "deadline_s", "breaker_s")
        require_bounds(self, prefix, "at least 1", "attempts", "breaker_failures", "max_concurrent")
        require_bounds(self, prefix, "0 or more", "backoff_s", "cache_size")

    @property
    def patience_s(self) -> float:
        """How long a call waits for a slot and for a broken tool, beside its own attempts."""
        return self.deadline_s * self.attempts


@dataclass(slots=True)
class _Flight(Generic[R]):
    """One query on its way, and how many callers wait for it."""

    task: asyncio.Task[R]
    waiters: int = 0


class Guard(Generic[Q, R]):
    """Calls `call` for an environment. Results are shared between callers: they must not be changed."""

    def __init__(
        self,
        name: str,
        call: Callable[[Q], Awaitable[R]],
        config: GuardConfig,
        *,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        key: Callable[[Q], Hashable] | None = None,
    ) -> None:
        """`key` says when two queries are the same; by default the query itself does."""
        self._name = name
        self._call = call
        self._config = config
        self._retry_on = retry_on
        self._key = key or (lambda query: cast(Hashable, query))
        self._circuit = _Circuit(config)
        self._slots = asyncio.Semaphore(config.max_concurrent)
        self._cache: LRUCache[Hashable, R] = LRUCache(config.cache_size)
        self._flights: dict[Hashable, _Flight[R]] = {}
        self._counts: Counter[str] = Counter()  # fields of ToolStats
        self._errors: Counter[str] = Counter()
        self._latency = list(ToolStats().latency)
        self._reason = ""  # of the last failed attempt

    async def __call__(self, query: Q) -> R:
        """The tool's result. Raises ToolFailed. A cancelled caller leaves the others who share its call alone."""
        self._counts["calls"] += 1
        key = self._key(query)
        if key in self._cache:
            self._counts["cache_hits"] += 1
            known: R = self._cache[key]
            return known
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._fetch(query, key, self._counts["calls"])))
        else:
            self._counts["shared"] += 1
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        except ToolFailed as failed:
            self._errors[str(failed.failure.kind)] += 1
            raise
        finally:
            flight.waiters -= 1
            if flight.waiters == 0:
                flight.task.cancel()  # nobody waits any more; nothing happens to a task that is done
                if self._flights.get(key) is flight:
                    del self._flights[key]

    def stats(self) -> ToolStats:
        return ToolStats(
            **self._counts,
            errors=dict(self._errors),
            breaker_opened=self._circuit.opened,
            breaker_open=self._circuit.open,
            outage=self._reason if self._circuit.open else "",
            latency=tuple(self._latency),
        )

    async def _fetch(self, query: Q, key: Hashable, number: int) -> R:
        config = self._config
        give_up = asyncio.get_running_loop().time() + config.patience_s
        vainly = f"no free slot within {config.patience_s:g} s ({config.max_concurrent} calls at once)"
        with self._queueing(FailureKind.TIMEOUT, vainly):
            async with asyncio.timeout_at(give_up):
                await self._slots.acquire()
        vainly = f"circuit open after {config.breaker_failures} failures in a row, waited {config.patience_s:g} s"
        try:
            for attempt in range(config.attempts):
                with self._queueing(FailureKind.INFRA, vainly):
                    trial = await self._circuit.admit(give_up)
                try:
                    result = await self._attempt(query, trial)
                except ToolRefused as error:
                    raise self._failed(FailureKind.DATA, str(error)) from error
                except Exception as error:  # the tool's fault boundary: whatever it raises is its failure
                    if attempt + 1 == config.attempts or not isinstance(error, self._retry_on):
                        raise self._given_up(error, attempt + 1) from error
                    self._counts["retries"] += 1
                    asked = error.after_s if isinstance(error, ToolBusy) else 0.0
                    await asyncio.sleep(max(self._backoff_s(number, attempt), min(asked, config.deadline_s)))
                else:
                    if config.cache_size:
                        self._cache[key] = result
                    return result
            raise AssertionError("at least one attempt")
        finally:
            self._slots.release()

    async def _attempt(self, query: Q, trial: bool) -> R:
        clock = asyncio.get_running_loop().time
        started = clock()
        self._counts["in_flight"] += 1
        works: bool | None = None  # a cancelled attempt says nothing about the tool
        try:
            async with asyncio.timeout(self._config.deadline_s):
                result = await self._call(query)
            works = True
            return result
        except ToolRefused:
            works = True
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            works = False
            raise ConnectionError("the tool cancelled the call") from error  # nobody here did
        except Exception as error:
            works, late = False, isinstance(error, TimeoutError)
            said = f"no answer within {self._config.deadline_s:g} s" if late else f"{type(error).__name__}: {error}"
            self._reason = said[:200]
            raise
        finally:
            self._counts["in_flight"] -= 1
            self._circuit.report(works, trial=trial)
            if works is not None:
                self._latency[latency_bucket(clock() - started)] += 1

    @contextmanager
    def _queueing(self, kind: FailureKind, vainly: str) -> Iterator[None]:
        """Around what waits for a slot or for the circuit, at most `patience_s`."""
        self._counts["queued"] += 1
        try:
            yield
        except TimeoutError:
            raise self._failed(kind, vainly) from None
        finally:
            self._counts["queued"] -= 1

    def _backoff_s(self, number: int, attempt: int) -> float:
        """Spread by a hash of the call's number: the same in every run, different for calls that failed together."""
        spread = 0.5 + derive(self._name, number, attempt) / 2**31
        return self._config.backoff_s * 2.0**attempt * spread

    def _given_up(self, error: Exception, attempts: int) -> ToolFailed:
        if isinstance(error, TimeoutError):
            return self._failed(
                FailureKind.TIMEOUT, f"no answer within {self._config.deadline_s:g} s, {attempts} times"
            )
        return self._failed(FailureKind.INFRA, f"{type(error).__name__}: {error}"[:500])

    def _failed(self, kind: FailureKind, detail: str) -> ToolFailed:
        return ToolFailed(kind, self._name, detail)


class _Circuit:
    """Closed: everybody passes. Open: nobody does for `breaker_s`, then one call alone tries, and its end decides."""

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._failures = 0  # in a row
        self._trial_at = 0.0  # on the loop's clock
        self._trying = False  # is the one call on its way?
        self._changed = asyncio.Event()
        self.open = False
        self.opened = 0  # how often

    async def admit(self, give_up: float) -> bool:
        """Wait for permission to call; True makes the call the trial. Raises TimeoutError at `give_up`."""
        clock = asyncio.get_running_loop().time
        while self.open:
            now = clock()
            if not self._trying and now >= self._trial_at:
                self._trying = True
                return True
            if now >= give_up:
                raise TimeoutError
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_up if self._trying else min(give_up, self._trial_at)):
                    await self._changed.wait()
        return False

    def report(self, works: bool | None, *, trial: bool) -> None:
        """How an admitted call ended; None when it was cancelled, which says nothing about the tool."""
        if works:
            self._failures, self.open = 0, False
        elif works is False:
            self._failures += 1
            if trial or (not self.open and self._failures >= self._config.breaker_failures):
                self.opened += not self.open
                self.open = True
                self._trial_at = asyncio.get_running_loop().time() + self._config.breaker_s
        self._trying = self._trying and self.open and not trial
        self._changed.set()  # whoever waits looks again
        self._changed = asyncio.Event()
