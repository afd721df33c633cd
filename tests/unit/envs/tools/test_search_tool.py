"""The search of an environment, with a scripted retriever."""

from __future__ import annotations

import asyncio

import pytest

from envs.services.guard import ToolRefused
from envs.services.retriever.corpus import Document
from envs.services.stats import ToolStats, merge
from envs.tools.search import RetrieverClient, SearchConfig, SearchTool


def test_searches_that_find_nothing_are_counted_apart_from_those_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(self: RetrieverClient, query: str) -> tuple[Document, ...]:
        if query == "refused":
            raise ToolRefused("not this one")
        return () if query == "nothing" else (Document(id="0", contents='"T"\nt'),)

    async def work() -> ToolStats:
        tool = SearchTool(SearchConfig(on_failure="empty"), 1)
        tool.connect("http://127.0.0.1:1", None)
        results = [await tool.search(query) for query in ("there", "nothing", "nothing", "refused")]
        assert [len(documents) for documents in results] == [1, 0, 0, 0]
        stats = tool.stats()["search"]
        await tool.close()
        return stats

    monkeypatch.setattr(RetrieverClient, "search", search)
    stats = asyncio.run(work())
    assert (stats.calls, stats.empty, sum(stats.errors.values())) == (4, 2, 1)
    assert merge([stats, stats]).row()["empty"] == 4.0
