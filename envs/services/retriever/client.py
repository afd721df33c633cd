"""What environments search with: Search-R1's /retrieve, on our server or on any other that speaks it."""

from __future__ import annotations

from typing import Any

from envs.services.guard import ToolRefused
from envs.services.json_client import JsonClient
from envs.services.retriever.documents import Document, contents

MAX_BYTES = 1 << 26  # of an answer


class RetrieverClient:
    """For one event loop. Retries and deadlines are the guard's."""

    def __init__(self, url: str, topk: int = 3, token: str | None = None) -> None:
        self._topk = topk
        self._client = JsonClient(
            url.rstrip("/").removesuffix("/retrieve") + "/retrieve",
            token,
            refused_key=ToolRefused,
            max_bytes=MAX_BYTES,
            proxy=False,
        )

    async def search(self, query: str) -> tuple[Document, ...]:
        """At most `topk` documents, best first. Raises what `JsonClient.post` does; ValueError for another protocol."""
        asked = {"queries": [query], "topk": self._topk, "return_scores": True}
        return read_answer(await self._client.post("", asked))[: self._topk]

    async def close(self) -> None:
        await self._client.close()


def read_answer(answer: Any) -> tuple[Document, ...]:
    """The documents of one query, in every shape that Search-R1's servers give them.

    `{"result": [[..]]}` of `{"document": {..}, "score"}` or of bare documents; a document is `{"id", "contents"}`, or
    `{"title", "text", "contents"}` without an id (BM25), or lacks `contents`. Raises ValueError for anything else.
    """
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or len(result) != 1 or not isinstance(result[0], list):
        raise ValueError('the retriever\'s answer is not {"result": [[..]]} with one list')
    return tuple(_document(found) for found in result[0])


def _document(found: Any) -> Document:
    record = found.get("document", found) if isinstance(found, dict) else None
    given = {key: value for key, value in record.items() if value is not None} if isinstance(record, dict) else {}
    if "contents" not in given and "text" not in given:
        raise ValueError('the retriever\'s answer holds a document without "contents"')
    text = given["contents"] if "contents" in given else contents(str(given.get("title", "")), str(given["text"]))
    return Document(id=str(given.get("id", "")), contents=str(text))
