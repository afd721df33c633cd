"""Live web search as a retriever: Serper's JSON, or SerpAPI's, becomes the Documents that a search world shows.

The web's text is hostile twice over: it may hold markup, and it may hold a protocol's own tags. Tags are taken out, and
what is left of angle brackets is replaced, so that no page can close a result and speak as the environment or the
model. `WebSearch` makes one attempt; retries and deadlines are the guard's.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from envs.services.address import is_loopback
from envs.services.guard import ToolBusy, ToolRefused
from envs.services.retriever.documents import Document, contents
from rlsys.errors import BadInput, require

MAX_QUERY = 1000  # characters
MAX_TITLE = 200
MAX_TEXT = 2000
MAX_BYTES = 2_000_000  # of an answer
BUSY_S = 1.0  # where a 429 does not say how long

_BOXES = ("answerBox", "answer_box", "knowledgeGraph", "knowledge_graph")
_LISTS = ("organic", "organic_results")
_ENVELOPES = ("searchParameters", "search_metadata")  # an answer without results has still one of these
_MARKUP = re.compile(r"</?[A-Za-z!][^<>]*>")


@dataclass(frozen=True, kw_only=True)
class WebSearchConfig:
    url: str = "https://google.serper.dev/search"
    """Takes {"q", "num"} by POST and the key as X-API-KEY; http only on loopback, for the key travels along."""
    key_env: str = "SERPER_API_KEY"
    """The environment variable that holds the key."""
    results: int = 3
    timeout_s: float = 20.0
    """Of one request."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        usable = bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and is_loopback(self.url))
        )
        require(usable, "web_search.url", self.url, "an https address, or http on loopback")
        require(1 <= self.results <= 100, "web_search.results", self.results, "1 to 100")
        require(self.timeout_s > 0, "web_search.timeout_s", self.timeout_s, "above 0")


class WebSearch:
    """`await search("capital of France")` gives at most `results` documents, best first. For one event loop."""

    def __init__(self, config: WebSearchConfig) -> None:
        """Raises BadInput without a usable key in the environment."""
        self._config = config
        self._host = urlsplit(config.url).hostname
        self._key = _key(config.key_env)
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, query: str) -> tuple[Document, ...]:
        """Raises ToolRefused (a bad query), ToolBusy (429), ConnectionError, TimeoutError, or ValueError (no JSON)."""
        if not query.strip():
            raise ToolRefused("empty query")
        status, retry_after, body = await self._post({"q": query[:MAX_QUERY], "num": self._config.results})
        if status in (400, 413, 414, 422):
            raise ToolRefused(f"{self._host} refused the query with {status}")
        if status in (401, 403):
            raise ConnectionError(f"{self._host} answered {status}: is the key in {self._config.key_env} valid?")
        if status == 429:
            raise ToolBusy(f"{self._host} answered 429", _seconds(retry_after))
        if status != 200:
            raise ConnectionError(f"{self._host} answered {status}")
        try:
            return parse_results(json.loads(body), self._config.results)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self._host}: {error}"[:200]) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, query: Mapping[str, object]) -> tuple[int, str, bytes]:
        """Status, Retry-After and body. Redirects are not followed: the key is for one host."""
        if self._session is None:
            # A proxy of the machine is for the web, not for loopback.
            self._session = aiohttp.ClientSession(trust_env=not is_loopback(self._config.url))
        body = bytearray()
        try:
            async with self._session.post(
                self._config.url,
                json=query,
                headers={"X-API-KEY": self._key},
                timeout=aiohttp.ClientTimeout(total=self._config.timeout_s),
                allow_redirects=False,
            ) as response:
                async for chunk in response.content.iter_chunked(65_536):
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise ValueError(f"{self._host}: an answer of more than {MAX_BYTES} bytes")
                return response.status, response.headers.get("Retry-After", ""), bytes(body)
        except aiohttp.ClientError as error:
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{self._host}: no answer") from None
            # aiohttp's own errors carry the request with its headers.
            raise ConnectionError(f"{self._host}: {type(error).__name__}") from None


def parse_results(payload: object, limit: int) -> tuple[Document, ...]:
    """The answer box, the knowledge graph and the organic results, in this order, at most `limit`.

    Results without text are left out, and an answer without results gives none. Raises ValueError for what is no search
    answer at all.
    """
    if not isinstance(payload, dict) or not any(key in payload for key in (*_BOXES, *_LISTS, *_ENVELOPES)):
        raise ValueError("the answer is not that of a web search")
    boxes = [payload.get(key) for key in _BOXES]
    listed = [entry for key in _LISTS if isinstance(payload.get(key), list) for entry in payload[key]]
    documents: list[Document] = []
    for entry in (*boxes, *listed):
        if len(documents) == limit:
            break
        if isinstance(entry, dict) and (document := _document(entry, len(documents))):
            documents.append(document)
    return tuple(documents)


def _document(entry: Mapping[str, Any], number: int) -> Document | None:
    attributes = entry.get("attributes")
    named = attributes.items() if isinstance(attributes, dict) else ()
    facts = [f"{key}: {value}" for key, value in named if isinstance(value, (str, int, float))]
    told = [entry.get(key) for key in ("answer", "snippet", "description")]
    text = _joined([*told, *facts], MAX_TEXT)
    if not text:
        return None
    link = entry.get("link")
    usable = isinstance(link, str) and link.startswith(("https://", "http://")) and plain(link, 500) == link
    return Document(
        id=str(link) if usable else f"web:{number}", contents=contents(_joined([entry.get("title")], MAX_TITLE), text)
    )


def _joined(parts: Iterable[object], limit: int) -> str:
    words = (plain(str(part), limit) for part in parts if isinstance(part, (str, int, float)))
    return " ".join(word for word in words if word)[:limit]


def plain(text: str, limit: int) -> str:
    """One line without markup, control characters or angle brackets, at most `limit` characters."""
    text = html.unescape(_MARKUP.sub(" ", text[: 4 * limit]))
    text = text.replace("<", "\u2039").replace(">", "\u203a")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:limit]


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise BadInput(f"web search needs a key: the environment variable {variable} is not set")
    if not (key.isascii() and key.isprintable()):
        raise BadInput(f"the environment variable {variable} holds characters that no key has")
    return key


def _seconds(retry_after: str) -> float:
    """Retry-After in seconds; its form with a date is read as BUSY_S."""
    return float(retry_after) if re.fullmatch(r"[0-9]{1,6}", retry_after) else BUSY_S
