"""What environments search with: Search-R1's /retrieve, on our server or on any other that speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

from envs.services.guard import ToolBusy, ToolRefused
from envs.services.retriever.documents import Document, contents

MAX_CONNECTIONS = 256
BUSY = (429, 503)  # come back later
RETRIED = (408, 425)  # of the other 4xx: not the request's fault


class RetrieverClient:
    """One HTTP session, opened by the first search; for one event loop. Retries and deadlines are the guard's."""

    def __init__(self, url: str, topk: int = 3, token: str | None = None, timeout_s: float = 30.0) -> None:
        self._url = url.rstrip("/").removesuffix("/retrieve") + "/retrieve"
        self._topk = topk
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def search(self, query: str) -> tuple[Document, ...]:
        """At most `topk` documents, best first.

        Raises ToolRefused where the server finds fault with the request, ToolBusy where it asks to come back, and
        otherwise aiohttp's errors, TimeoutError, or ValueError for an answer that is not the protocol's.
        """
        asked = {"queries": [query], "topk": self._topk, "return_scores": True}
        async with self._open().post(self._url, json=asked) as response:
            if response.status in BUSY:
                raise ToolBusy(f"{self._url} answered {response.status}", retry_after(response.headers))
            if 400 <= response.status < 500 and response.status not in RETRIED:
                raise ToolRefused(f"{self._url} answered {response.status}: {(await response.text())[:200]}")
            response.raise_for_status()
            return read_answer(await response.json(content_type=None))[: self._topk]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS), headers=self._headers, timeout=self._timeout
            )
        return self._session


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds; 1 where the server does not say, or gives a date."""
    stated = headers.get("Retry-After", "")
    return float(stated[:6]) if stated.isascii() and stated.isdigit() else 1.0


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
