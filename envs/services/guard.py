"""What stands between an environment, a reward or a teacher and a service that can die, hang or lie.

One `Guard` per service and event loop:

    call -> cache? -> the same query in flight? share it -> a free slot? -> circuit closed? -> attempt, deadline, retry

A call waits for a slot and for the circuit at most `GuardConfig.patience_s` in all, then it fails with a type. With
`outage_s`, which judges and teachers have, calls wait that long for a service that answers none of them, and only then
fail; a call that fails while others are answered fails after its attempts.

Calls keep their slot while they wait for the circuit, so that no more than `max_concurrent` start when the service
comes back, and only one of them tries whether it did. Retries follow the exception: ToolRefused is the service's answer
and final; whatever else a call raises may be mended by another attempt.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from cachetools import LRUCache
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from envs.services.circuit import Circuit, Rate
from envs.services.stats import ToolStats, latency_bucket
from rlsys.errors import require_bounds
from rlsys.rollout import EpisodeBroken
from rlsys.seeds import derive_seed
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


FINAL = (ToolRefused, ToolFailed)  # no attempt mends them


@dataclass(frozen=True, kw_only=True)
class GuardConfig:
    """Timeouts, retries, circuit breaker, cache and concurrency of the calls to a tool."""

    deadline_s: float = 30.0
    """Timeout of one attempt at a call, in seconds."""
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
        """How long a call waits for a slot and for a broken tool, in addition to its own attempts."""
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
        outage_s: float | None = None,
        spacing_s: float = 0.0,
    ) -> None:
        """`key` says when two queries are the same; by default the query itself does.

        `outage_s` is how long a call waits while no call is answered; it replaces `config.patience_s`. `spacing_s` is
        the time between the starts of two attempts.
        """
        self._name = name
        self._call = call
        self._config = config
        self._outage_s = outage_s
        self._retry_on = retry_on
        self._key = key or (lambda query: cast(Hashable, query))
        self._circuit = Circuit(name, config.breaker_failures, config.breaker_s)
        self._rate = Rate(spacing_s)
        self._slots = asyncio.Semaphore(config.max_concurrent)
        self._cache: LRUCache[Hashable, R] = LRUCache(config.cache_size)
        self._flights: dict[Hashable, _Flight[R]] = {}
        self._counts: Counter[str] = Counter()  # fields of ToolStats
        self._errors: Counter[str] = Counter()
        self._latency = list(ToolStats().latency)

    async def __call__(self, query: Q) -> R:
        """The service's result. Raises ToolFailed. A cancelled caller leaves the others who share its call alone."""
        self._counts["calls"] += 1
        key = self._key(query)
        if key in self._cache:
            self._counts["cache_hits"] += 1
            cached: R = self._cache[key]
            return cached
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._fetch(query, key, self._counts["calls"])))
        else:
            self._counts["shared"] += 1
        flight.waiters += 1
        try:
            return await self._await_flight(flight.task)
        except ToolFailed as failed:
            self._errors[str(failed.failure.kind)] += 1
            raise
        finally:
            flight.waiters -= 1
            if flight.waiters == 0:
                flight.task.cancel()  # no caller waits any more; this does nothing to a task that is done
                if self._flights.get(key) is flight:
                    del self._flights[key]

    def stats(self) -> ToolStats:
        circuit = self._circuit
        return ToolStats(
            **self._counts,
            errors=dict(self._errors),
            breaker_opened=circuit.opened,
            breaker_open=circuit.open,
            outage=(circuit.reason or "no answer") if circuit.open or circuit.warned else "",
            latency=tuple(self._latency),
        )

    async def _await_flight(self, task: asyncio.Task[R]) -> R:
        """Of a flight, which outlives a cancelled caller; waits until no call has been answered for `outage_s`."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while not task.done():
            remaining_s = None
            if self._outage_s is not None:
                remaining_s = self._outage_s - (clock() - max(began, self._circuit.answered_at))
                if remaining_s <= 0:
                    reason = self._circuit.reason or "not tried"
                    raise self._make_failure(
                        FailureKind.INFRA, f"no answer to anybody for {self._outage_s:g} s: {reason}"
                    )
            await asyncio.wait({task}, timeout=remaining_s)
        return task.result()

    async def _fetch(self, query: Q, key: Hashable, number: int) -> R:
        config = self._config
        give_up = None if self._outage_s is not None else asyncio.get_running_loop().time() + config.patience_s
        full = f"no free slot within {config.patience_s:g} s ({config.max_concurrent} calls at once)"
        with self._queue_timeout_as_failure(FailureKind.TIMEOUT, full):
            async with asyncio.timeout_at(give_up):
                await self._slots.acquire()
        retrying = self._retrying(number)
        try:
            result: R = await retrying(self._attempt, query, give_up)
        except ToolFailed:
            raise
        except ToolRefused as error:
            raise self._make_failure(FailureKind.DATA, str(error)) from error
        except TimeoutError as error:
            times = retrying.statistics["attempt_number"]
            raise self._make_failure(FailureKind.TIMEOUT, f"{self._deadline_message}, {times} times") from error
        except Exception as error:  # the service's fault boundary: whatever it raises is its failure
            raise self._make_failure(FailureKind.INFRA, f"{type(error).__name__}: {error}"[:500]) from error
        finally:
            self._slots.release()
        if config.cache_size:
            self._cache[key] = result
        return result

    def _retrying(self, number: int) -> AsyncRetrying:
        """How the call of this number is tried again: in rounds of `attempts`, one of them where `outage_s` is None.

        Another round begins where no call was answered in the last one, and where the service said to come back.
        """
        clock = asyncio.get_running_loop().time
        began = round_began = clock()

        def is_over(state: RetryCallState) -> bool:
            nonlocal round_began
            if state.attempt_number % self._config.attempts:
                return False
            if self._outage_s is None:
                return True
            busy = isinstance(_error_of(state), ToolBusy) and clock() - began < self._outage_s
            if self._circuit.answered_at > round_began and not busy:
                return True
            self._circuit.warn()
            round_began = clock()
            return False

        def wait_s(state: RetryCallState) -> float:
            error, attempt = _error_of(state), state.attempt_number % self._config.attempts
            if attempt == 0:  # of the next round it is the circuit that says when
                return 0.0
            asked_s = min(error.after_s, self._config.deadline_s) if isinstance(error, ToolBusy) else 0.0
            return max(self._backoff_s(number, attempt - 1), asked_s)

        def count(state: RetryCallState) -> None:
            self._counts["retries"] += state.attempt_number % self._config.attempts > 0  # another round is no retry

        may_mend = retry_if_exception(lambda error: isinstance(error, self._retry_on) and not isinstance(error, FINAL))
        return AsyncRetrying(
            sleep=asyncio.sleep, retry=may_mend, stop=is_over, wait=wait_s, before_sleep=count, reraise=True
        )

    async def _attempt(self, query: Q, give_up: float | None) -> R:
        """Raises ToolFailed where the circuit does not close until `give_up`."""
        patience = f"{self._config.breaker_failures} failures in a row, waited {self._config.patience_s:g} s"
        with self._queue_timeout_as_failure(FailureKind.INFRA, f"circuit open after {patience}"):
            trial = await self._circuit.admit(give_up)
        clock = asyncio.get_running_loop().time
        started = clock()
        self._counts["in_flight"] += 1
        works: bool | None = None  # a cancelled attempt says nothing about the service
        try:
            await self._rate.turn()
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
            raise ConnectionError("the tool cancelled the call") from error  # no code of ours did
        except Exception as error:
            works = False
            late = isinstance(error, TimeoutError)
            self._circuit.reason = (self._deadline_message if late else f"{type(error).__name__}: {error}")[:200]
            if isinstance(error, ToolBusy) and self._outage_s is not None:  # holds for all calls
                self._rate.pause(min(error.after_s, self._config.deadline_s))
            raise
        finally:
            self._counts["in_flight"] -= 1
            self._circuit.report(works, trial=trial)
            if works is not None:
                self._latency[latency_bucket(clock() - started)] += 1

    @property
    def _deadline_message(self) -> str:
        return f"no answer within {self._config.deadline_s:g} s"

    @contextmanager
    def _queue_timeout_as_failure(self, kind: FailureKind, detail: str) -> Iterator[None]:
        """Around what waits for a slot or for the circuit; where that takes too long, the call fails."""
        self._counts["queued"] += 1
        try:
            yield
        except TimeoutError:
            raise self._make_failure(kind, detail) from None
        finally:
            self._counts["queued"] -= 1

    def _backoff_s(self, number: int, attempt: int) -> float:
        """Spread by a hash of the call's number: the same in every run, different for calls that failed together."""
        spread = 0.5 + derive_seed(self._name, number, attempt) / 2**31
        return self._config.backoff_s * 2.0**attempt * spread

    def _make_failure(self, kind: FailureKind, detail: str) -> ToolFailed:
        return ToolFailed(kind, self._name, detail)


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None
