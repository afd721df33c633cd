"""Queries of many requests, searched together.

Produces: answers. Waits for: queries. A free searcher takes its share of everything that waits, up to `max_batch`, and
hands it to a worker thread; meanwhile the next batch gathers. No timer: an idle server answers a lone query at once, a
busy one batches by itself. Equal queries under way are searched once, recent answers are kept, and the queue is
bounded: what would exceed it is refused at once, so that a server under too much load stays as fast as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from envs.retriever.metrics import Metrics
from envs.retriever.retriever import Found

log = logging.getLogger(__name__)

Key = tuple[str, int]  # query, k
Search = Callable[[Sequence[str], int], Sequence[Found]]

ENTRY_BYTES = 400  # of an entry in the cache: key, tuple, links
HIT_BYTES = 300  # of a hit: a Document with two strings, a score, a pair
CHARACTER_BYTES = 2  # between Latin text and the rest


class Busy(Exception):
    """The queue is full."""


class Late(Exception):
    """The deadline passed."""


class SearchFailed(Exception):
    """The retriever raised: its error as text."""


@dataclass(slots=True)
class _Asked:
    key: Key
    deadline: float  # monotonic seconds
    answer: asyncio.Future[Found] = field(repr=False)


class Batcher:
    """Lives in one event loop: `start`, any number of concurrent `search`es, `close`."""

    def __init__(
        self,
        search: Search,
        metrics: Metrics,
        *,
        max_batch: int,
        max_queue: int,
        cache_bytes: int,
        deadline_s: float,
        searchers: int = 1,
        enter_thread: Callable[[], None] = lambda: None,
    ) -> None:
        """`searchers` batches are searched at once, each in a thread that calls `enter_thread` first."""
        self._search = search
        self._metrics = metrics
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._deadline_s = deadline_s
        self._waiting: deque[_Asked] = deque()
        self._under_way: dict[Key, asyncio.Future[Found]] = {}
        self._cache = Cache(cache_bytes)
        self._some = asyncio.Event()
        self._closing = False
        self._searchers = searchers
        self._tasks: list[asyncio.Task[None]] = []
        self._threads = ThreadPoolExecutor(searchers, thread_name_prefix="retriever", initializer=enter_thread)
        self._searched: dict[asyncio.Task[None], tuple[int, float]] = {}  # how many queries, and since when
        metrics.watch("retriever_queue", "Queries that wait", lambda: float(len(self._waiting)))
        metrics.watch("retriever_cache_bytes", "Size of the cache, estimated", lambda: float(self._cache.bytes))

    def start(self) -> None:
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
    def stuck(self) -> bool:
        """A worker has been at one batch for longer than any request may wait."""
        now = time.monotonic()
        return any(now - since > self._deadline_s for _, since in self._searched.values())

    async def search(self, queries: Sequence[str], k: int) -> list[Found]:
        """Answers in the order of `queries`. Raises Busy, Late or SearchFailed."""
        self._metrics.queries.inc(len(queries))
        known: dict[str, Found] = {}
        for query in queries:
            if query not in known and (found := self._cache.get((query, k))) is not None:
                known[query] = found
        new = {query for query in queries if query not in known and (query, k) not in self._under_way}
        if self._closing or len(self._waiting) + len(new) > self._max_queue:
            raise Busy
        deadline = time.monotonic() + self._deadline_s
        waited: dict[str, asyncio.Future[Found]] = {}
        for query in queries:  # not over the set: first come, first served
            if query in known:
                self._metrics.cache_hits.inc()
            elif query in waited or (query, k) in self._under_way:
                self._metrics.shared.inc()
                waited[query] = self._under_way[query, k]
            else:
                waited[query] = self._ask((query, k), deadline)
        if waited:
            # Not gather or wait_for: they would cancel a search that others wait for too.
            _, late = await asyncio.wait(set(waited.values()), timeout=self._deadline_s)
            if late:
                raise Late
        return [known[query] if query in known else waited[query].result() for query in queries]

    def _ask(self, key: Key, deadline: float) -> asyncio.Future[Found]:
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._under_way[key] = answer
        self._waiting.append(_Asked(key=key, deadline=deadline, answer=answer))
        self._some.set()
        return answer

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            if self._waiting:
                await self._answer(self._next_batch())
            else:
                self._some.clear()
                await self._some.wait()

    def _next_batch(self) -> list[_Asked]:
        """The oldest, up to `max_batch` and a fair share; those that nobody waits for any more are dropped."""
        outstanding = len(self._waiting) + sum(size for size, _ in self._searched.values())
        most = min(self._max_batch, -(-outstanding // self._searchers))
        batch: list[_Asked] = []
        now = time.monotonic()
        while self._waiting and len(batch) < most:
            asked = self._waiting.popleft()
            if asked.deadline > now:
                batch.append(asked)
            else:
                self._settle(asked, Late())
        return batch

    async def _answer(self, batch: list[_Asked]) -> None:
        by_k: dict[int, list[_Asked]] = {}  # one k per search: what is found does not depend on who else asks
        for asked in batch:
            by_k.setdefault(asked.key[1], []).append(asked)
        task = asyncio.current_task()
        assert task is not None
        for k, group in by_k.items():
            self._metrics.batch.observe(len(group))
            started = time.monotonic()
            self._searched[task] = len(group), started
            try:
                found = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._search, [asked.key[0] for asked in group], k
                )
            except Exception as error:  # the fault boundary: a failed search fails its requests, not the server
                log.exception("search of %d queries failed", len(group))
                for asked in group:
                    self._settle(asked, SearchFailed(f"{type(error).__name__}: {error}"))
                continue
            finally:
                del self._searched[task]
                self._metrics.search.observe(time.monotonic() - started)
            for asked, documents in zip(group, found, strict=True):
                self._cache.put(asked.key, documents)
                self._settle(asked, documents)

    def _settle(self, asked: _Asked, outcome: Found | Exception) -> None:
        del self._under_way[asked.key]
        if isinstance(outcome, Exception):
            asked.answer.set_exception(outcome)
            asked.answer.exception()  # read once: nobody may be waiting any more
        else:
            asked.answer.set_result(outcome)


class Cache:
    """Least recently used answers, bounded by their estimated size in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: OrderedDict[Key, Found] = OrderedDict()
        self.bytes = 0

    def get(self, key: Key) -> Found | None:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def put(self, key: Key, found: Found) -> None:
        if key in self._found or size(key, found) > self._limit:
            return
        self._found[key] = found
        self.bytes += size(key, found)
        while self.bytes > self._limit:
            self.bytes -= size(*self._found.popitem(last=False))


def size(key: Key, found: Found) -> int:
    characters = len(key[0]) + sum(len(document.id) + len(document.contents) for document, _ in found)
    return ENTRY_BYTES + len(found) * HIT_BYTES + characters * CHARACTER_BYTES
