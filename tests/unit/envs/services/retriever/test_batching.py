"""The micro-batcher's promises: batches, order, shared searches, a bounded queue, a bounded cache, an orderly end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry

from envs.services.retriever.batching import (
    CHARACTER_BYTES,
    ENTRY_BYTES,
    Batcher,
    Busy,
    DeadlineExceeded,
    Metrics,
    SearchFailed,
)
from envs.services.retriever.corpus import Document
from envs.services.retriever.retriever import Found


def found_for(query: str, k: int) -> Found:
    return tuple((Document(id=f"{query}{place}", contents=query), 1.0 / (place + 1)) for place in range(k))


class Slow:
    """A search that waits for `go`, and records its batches."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started = threading.Event()
        self.batches: list[tuple[list[str], int]] = []
        self.entered: list[int] = []  # threads
        self.searched: list[int] = []  # in which thread

    def __call__(self, queries: Sequence[str], k: int) -> list[Found]:
        self.batches.append((list(queries), k))
        self.searched.append(threading.get_ident())
        self.started.set()
        assert self.go.wait(60)
        if "broken" in queries:
            raise ValueError("no such luck")
        return [found_for(query, k) for query in queries]

    async def until_started(self) -> None:
        assert await asyncio.to_thread(self.started.wait, 10)


def run(
    plan: Callable[[Batcher[Found], Slow], Awaitable[None]],
    *,
    max_batch: int = 4,
    max_queue: int = 8,
    cache_bytes: int = 1 << 20,
    deadline_s: float = 10.0,
    searchers: int = 1,
    in_loop: bool = False,
) -> Slow:
    search = Slow()

    async def main() -> None:
        registry = CollectorRegistry()
        batcher = Batcher(
            search,
            Metrics(registry),
            max_batch=max_batch,
            max_queue=max_queue,
            cache_bytes=cache_bytes,
            deadline_s=deadline_s,
            size=len,
            searchers=searchers,
            in_loop=in_loop,
            enter_thread=lambda: search.entered.append(threading.get_ident()),
        )
        batcher.start()
        try:
            await plan(batcher, search)
        finally:
            search.go.set()
            await batcher.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    return search


def test_what_waits_while_a_search_runs_is_searched_together() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        first = asyncio.create_task(batcher.search(["a"], 2))
        await search.until_started()
        others = [asyncio.create_task(batcher.search([query], 2)) for query in "bcdefg"]
        await asyncio.sleep(0)
        search.go.set()
        assert await asyncio.gather(first, *others) == [[found_for(query, 2)] for query in "abcdefg"]

    assert run(play).batches == [(["a"], 2), (["b", "c", "d", "e"], 2), (["f", "g"], 2)]


def test_two_searchers_share_what_waits() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        others = [asyncio.create_task(batcher.search([query], 2)) for query in "abcdef"]
        while len(search.batches) < 2:
            await asyncio.sleep(0.01)
        search.go.set()
        assert await asyncio.gather(*others) == [[found_for(query, 2)] for query in "abcdef"]

    search = run(play, searchers=2)
    assert sorted(search.batches) == [(["a", "b", "c"], 2), (["d", "e", "f"], 2)]
    assert len(set(search.entered)) == 2


def test_a_search_that_is_brief_is_made_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    brief_s = 0.2  # so long that a busy machine does not matter
    monkeypatch.setattr("envs.services.retriever.batching.BRIEF_S", brief_s)

    async def play(batcher: Batcher[Found], search: Slow) -> None:
        first = asyncio.create_task(batcher.search(["a"], 1))  # how long it takes is not known yet
        await search.until_started()
        await asyncio.sleep(brief_s)
        search.go.set()
        await first
        for query in ("b", "c", "d" * 10**6):  # too long was the first, and a long query is no brief one
            assert await batcher.search([query], 1) == [found_for(query, 1)]
        with pytest.raises(SearchFailed, match="ValueError: no such luck"):
            await batcher.search(["broken"], 1)

    caller = threading.get_ident()
    search = run(play, in_loop=True)
    assert [thread == caller for thread in search.searched] == [False, False, True, False, True]
    assert all(thread != caller for thread in run(play).searched)


def test_each_k_is_searched_by_itself() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        search.go.set()
        answers = await asyncio.gather(batcher.search(["a", "b"], 1), batcher.search(["a"], 3), batcher.search([], 2))
        assert answers == [[found_for("a", 1), found_for("b", 1)], [found_for("a", 3)], []]

    assert run(play).batches == [(["a", "b"], 1), (["a"], 3)]


def test_equal_queries_are_searched_once_and_then_come_from_the_cache() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        siblings = [asyncio.create_task(batcher.search(["a", "b", "a"], 2)) for _ in range(8)]
        await search.until_started()
        search.go.set()
        expected = [found_for("a", 2), found_for("b", 2), found_for("a", 2)]
        assert await asyncio.gather(*siblings) == [expected] * 8
        assert await batcher.search(["b"], 2) == [found_for("b", 2)]

    assert run(play).batches == [(["a", "b"], 2)]


def test_without_a_cache_it_is_searched_again() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        search.go.set()
        for _ in range(2):
            await batcher.search(["a"], 1)

    assert run(play, cache_bytes=0).batches == [(["a"], 1)] * 2


def test_a_full_queue_refuses_at_once_and_keeps_what_it_holds() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        first = asyncio.create_task(batcher.search(["first"], 1))
        await search.until_started()
        queued = asyncio.create_task(batcher.search([f"q{row}" for row in range(8)], 1))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await batcher.search(["one too many"], 1)
        joined = asyncio.create_task(batcher.search(["q3"], 1))  # no new work
        await asyncio.sleep(0)
        search.go.set()
        assert len((await first) + (await queued) + (await joined)) == 10
        assert await batcher.search(["one too many"], 1) == [found_for("one too many", 1)]

    run(play)


def test_a_failed_search_fails_its_queries_only() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        search.go.set()
        with pytest.raises(SearchFailed, match="ValueError: no such luck"):
            await batcher.search(["broken"], 1)
        assert await batcher.search(["fine"], 1) == [found_for("fine", 1)]

    run(play)


def test_a_search_that_hangs_is_late_and_seen_as_stuck() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        first = asyncio.create_task(batcher.search(["a"], 1))
        await search.until_started()
        second = asyncio.create_task(batcher.search(["b"], 1))
        for waiting in (first, second):
            with pytest.raises(DeadlineExceeded):
                await waiting
        await asyncio.sleep(0.05)
        assert batcher.stuck
        search.go.set()
        assert await batcher.search(["c"], 1) == [found_for("c", 1)]
        assert not batcher.stuck

    batches = run(play, deadline_s=0.2).batches
    assert (["b"], 1) not in batches  # nobody waited for it any more


def test_a_cancelled_request_leaves_the_others_their_answer() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        gone = asyncio.create_task(batcher.search(["a"], 1))
        stays = asyncio.create_task(batcher.search(["a"], 1))
        await search.until_started()
        gone.cancel()
        await asyncio.sleep(0)
        search.go.set()
        assert await stays == [found_for("a", 1)]

    run(play)


def test_closing_answers_what_waits_and_takes_nothing_new() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        waiting = [asyncio.create_task(batcher.search([query], 1)) for query in "abcdef"]
        await search.until_started()
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await batcher.search(["late"], 1)
        search.go.set()
        await closing
        assert await asyncio.gather(*waiting) == [[found_for(query, 1)] for query in "abcdef"]

    run(play)


def test_the_cache_stays_within_its_bytes_and_forgets_the_oldest() -> None:
    async def play(batcher: Batcher[Found], search: Slow) -> None:
        search.go.set()
        for query in "aabac":  # of two that are kept, b was asked longest ago when c comes
            await batcher.search([query], 1)
        assert [queries for queries, _ in search.batches] == [["a"], ["b"], ["c"]]
        assert batcher.cache_bytes == 2 * ENTRY
        await batcher.search(["a"], 1)
        await batcher.search(["b"], 1)
        await batcher.search(["x" * 2 * ENTRY], 1)  # larger than the whole cache
        assert [queries[0][0] for queries, _ in search.batches] == ["a", "b", "c", "b", "x"]
        assert batcher.cache_bytes == 2 * ENTRY

    ENTRY = ENTRY_BYTES + CHARACTER_BYTES + 1
    run(play, cache_bytes=3 * ENTRY - 1)
