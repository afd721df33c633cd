"""Queries of many requests, searched together.

Produces: answers. Waits for: queries. A free searcher takes its share of everything that waits, up to `max_batch`, and
hands it to a worker thread (a brief one it searches at once); meanwhile the next batch gathers. No timer: an idle
server answers a lone query at once, a busy one batches by itself. Equal queries under way are searched once, recent
answers are kept, and the queue is bounded: what would exceed it is refused at once, so that a server under too much
load stays as fast as it is.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cachetools import LRUCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from envs.services.app import SECONDS

log = logging.getLogger(__name__)

Key = tuple[str, int]  # query, k
Answer = TypeVar("Answer")

ENTRY_BYTES = 400  # of an entry in the cache: key, tuple, links
CHARACTER_BYTES = 2  # of a query, between Latin text and the rest

BRIEF_S = 0.01  # the event loop may stand still for so long
QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Busy(Exception):
    """The queue is full."""


class DeadlineExceeded(Exception):
    """The deadline passed."""


class SearchFailed(Exception):
    """The retriever raised: its error as text."""


@dataclass(slots=True, eq=False)
class _Request:
    missing: int  # of its queries
    found: asyncio.Future[None]  # all of them, or one failed


@dataclass(slots=True, eq=False)
class _PendingQuery(Generic[Answer]):
    key: Key
    requests: list[_Request] = field(default_factory=list)  # that wait for it
    answer: Answer | None = None


class Metrics:
    """What a retriever counts of its queries, for /metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.queries = Counter("retriever_queries", "Queries asked", registry=registry)
        self.cut = Counter("retriever_queries_cut", "Queries longer than max_query_chars", registry=registry)
        self.cache_hits = Counter("retriever_cache_hits", "Queries answered from the cache", registry=registry)
        self.shared = Counter("retriever_shared", "Queries that joined an equal one under way", registry=registry)
        self.batch = Histogram("retriever_batch_queries", "Queries of a search", buckets=QUERIES, registry=registry)
        self.search = Histogram("retriever_search_seconds", "Time of one batch", buckets=SECONDS, registry=registry)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when asked."""
        Gauge(name, text, registry=self._registry).set_function(read)


class Batcher(Generic[Answer]):
    """Lives in one event loop: `start`, any number of concurrent `search`es, `close`."""

    def __init__(
        self,
        search: Callable[[Sequence[str], int], Sequence[Answer]],
        metrics: Metrics,
        *,
        max_batch: int,
        max_queue: int,
        cache_bytes: int,
        deadline_s: float,
        size: Callable[[Answer], int],
        searchers: int = 1,
        enter_thread: Callable[[], None] = lambda: None,
        in_loop: bool = False,
    ) -> None:
        """`searchers` batches are searched at once, each in a thread that calls `enter_thread` first.

        `size` estimates an answer's bytes, for the cache. With `in_loop` a batch that the last one's pace says to be
        brief is searched in the event loop: a thread would only take turns with it, for Python's lock.
        """
        self._search = search
        self._metrics = metrics
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._deadline_s = deadline_s
        self._waiting: deque[_PendingQuery[Answer]] = deque()
        self._under_way: dict[Key, _PendingQuery[Answer]] = {}
        self._cache: LRUCache[Key, tuple[Answer, int]] = LRUCache(cache_bytes, getsizeof=lambda entry: entry[1])
        self._size = size
        self._some = asyncio.Event()
        self._closing = False
        self._searchers = searchers
        self._tasks: list[asyncio.Task[None]] = []
        self._threads = ThreadPoolExecutor(searchers, thread_name_prefix="retriever", initializer=enter_thread)
        self._in_loop = in_loop
        self._pace_s = math.inf  # of the last batch, per character: a long query costs what its words do
        self._searched: dict[asyncio.Task[None], tuple[int, float]] = {}  # how many queries, and since when
        metrics.watch("retriever_queue", "Queries that wait", lambda: float(len(self._waiting)))
        metrics.watch("retriever_cache_bytes", "Size of the cache, estimated", lambda: self.cache_bytes)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(self._run()) for _ in range(self._searchers)]

    async def close(self) -> bool:
        """Answer what waits, then end. False where a worker hangs, which is left behind after the deadline."""
        self._closing = True
        self._some.set()
        hanging: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, hanging = await asyncio.wait(self._tasks, timeout=self._deadline_s)
            for task in hanging:
                task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not hanging

    @property
    def cache_bytes(self) -> float:
        return float(self._cache.currsize)

    @property
    def stuck(self) -> bool:
        """A worker has been at one batch for longer than any request may wait."""
        now = time.monotonic()
        return any(now - since > self._deadline_s for _, since in self._searched.values())

    async def search(self, queries: Sequence[str], k: int) -> list[Answer]:
        """Answers in the order of `queries`. Raises Busy, DeadlineExceeded or SearchFailed."""
        answers = {query: self._cache.get((query, k), (None,))[0] for query in queries}
        unknown = [query for query, answer in answers.items() if answer is None]
        new = sum((query, k) not in self._under_way for query in unknown)
        hits = sum(answers[query] is not None for query in queries) if unknown else len(queries)
        self._metrics.queries.inc(len(queries))
        if self._closing or len(self._waiting) + new > self._max_queue:
            raise Busy
        self._metrics.cache_hits.inc(hits)
        if unknown:
            self._metrics.shared.inc(len(queries) - hits - new)
            request = _Request(len(unknown), self._loop.create_future())
            waited = [self._enqueue((query, k), request) for query in unknown]
            try:
                async with asyncio.timeout(self._deadline_s):
                    await request.found
            except TimeoutError:
                raise DeadlineExceeded from None
            answers |= {job.key[0]: job.answer for job in waited}
        return [answers[query] for query in queries]  # type: ignore[misc]  # none is missing any more

    def _enqueue(self, key: Key, request: _Request) -> _PendingQuery[Answer]:
        job = self._under_way.get(key)
        if job is None:
            job = self._under_way[key] = _PendingQuery(key)
            self._waiting.append(job)
            self._some.set()
        job.requests.append(request)
        return job

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            if self._waiting:
                await asyncio.sleep(0)  # what was found before is sent first
                await self._answer(self._next_batch())
            else:
                self._some.clear()
                await self._some.wait()

    def _next_batch(self) -> list[_PendingQuery[Answer]]:
        """The oldest queries, up to `max_batch` and a fair share; those without a waiting caller are dropped."""
        outstanding = len(self._waiting) + sum(size for size, _ in self._searched.values())
        most = min(self._max_batch, -(-outstanding // self._searchers))
        batch: list[_PendingQuery[Answer]] = []
        while self._waiting and len(batch) < most:
            job = self._waiting.popleft()
            if all(request.found.done() for request in job.requests):
                del self._under_way[job.key]
            else:
                batch.append(job)
        return batch

    async def _answer(self, batch: list[_PendingQuery[Answer]]) -> None:
        by_k: dict[
            int, list[_PendingQuery[Answer]]
        ] = {}  # one k per search: what is found does not depend on who else asks
        for job in batch:
            by_k.setdefault(job.key[1], []).append(job)
        task = asyncio.current_task()
        assert task is not None
        for k, group in by_k.items():
            self._metrics.batch.observe(len(group))
            started = time.monotonic()
            self._searched[task] = len(group), started
            try:
                queries = [member.key[0] for member in group]
                answers = await self._run_search(queries, k)
                if len(answers) != len(group):
                    raise ValueError(f"{len(answers)} answers to {len(group)} queries")
                self._pace_s = (time.monotonic() - started) / max(_count_characters(queries), 1)
            except Exception as error:  # the fault boundary: a failed search fails its requests, not the server
                log.exception("search of %d queries failed", len(group))
                for job in group:
                    self._resolve_requests(job, SearchFailed(f"{type(error).__name__}: {error}"))
                continue
            finally:
                del self._searched[task]
                self._metrics.search.observe(time.monotonic() - started)
            for job, answer in zip(group, answers, strict=True):
                self._cache_answer(job.key, answer)
                job.answer = answer
                self._resolve_requests(job)

    def _cache_answer(self, key: Key, answer: Answer) -> None:
        size = ENTRY_BYTES + len(key[0]) * CHARACTER_BYTES + self._size(answer)
        if size <= self._cache.maxsize:
            self._cache[key] = answer, size

    async def _run_search(self, queries: list[str], k: int) -> Sequence[Answer]:
        """What a search found, in a thread or at once."""
        if self._in_loop and self._pace_s * _count_characters(queries) <= BRIEF_S:
            return self._search(queries, k)
        return await self._loop.run_in_executor(self._threads, self._search, queries, k)

    def _resolve_requests(self, job: _PendingQuery[Answer], failure: SearchFailed | None = None) -> None:
        del self._under_way[job.key]
        for request in job.requests:
            request.missing -= 1
            if request.found.done():
                continue  # late, or cancelled, or another of its queries failed
            if failure is not None:
                request.found.set_exception(failure)
            elif request.missing == 0:
                request.found.set_result(None)


def _count_characters(queries: Sequence[str]) -> int:
    return sum(map(len, queries))
