"""Live web search as a retriever: Serper's JSON, or SerpAPI's, becomes the Documents that a search world shows.

The web's text is hostile twice over: it may hold markup, and it may hold a protocol's own tags. Tags are taken out, and
what is left of angle brackets is replaced, so that no page can close a result and speak as the environment or the
model. `WebSearch` makes one attempt; retries and deadlines are the guard's. `env.retriever.kind: web` asks for it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from envs.services.guard import ToolRefused
from envs.services.json_client import JsonClient
from envs.services.retriever.config import WEB_URLS, WebSearchConfig
from envs.services.retriever.corpus import Document, contents
from envs.services.secrets import read_secret
from rlsys.errors import BadInput

MAX_QUERY = 1000  # characters
MAX_TITLE = 200
MAX_TEXT = 2000
MAX_BYTES = 2_000_000  # of an answer

_BOXES = ("answerBox", "answer_box", "knowledgeGraph", "knowledge_graph")
_LISTS = ("organic", "organic_results")
_ENVELOPES = ("searchParameters", "search_metadata")  # an answer without results has still one of these
_MARKUP = re.compile(r"</?[A-Za-z!][^<>]*>")


class WebSearch:
    """`await web.search("capital of France")` gives at most `topk` documents, best first. For one event loop."""

    def __init__(self, config: WebSearchConfig, topk: int = 3) -> None:
        """Raises BadInput without a usable key in the environment."""
        key = read_secret("env.retriever.web.key_env", config.key_env)
        if key is None:
            expected = "the variable that holds the key of the web search"
            raise BadInput(key="env.retriever.web.key_env", found=None, expected=expected)
        url = config.url or WEB_URLS[config.api]
        self._by_get = config.api == "serpapi"
        self._topk = topk
        self._name = urlsplit(url).hostname or ""
        self._client = JsonClient(
            url,
            key,
            key_header="X-API-KEY",
            key_query="api_key" if self._by_get else "",
            key_from=config.key_env or "",
            name=self._name,
            max_bytes=MAX_BYTES,
        )

    async def search(self, query: str) -> tuple[Document, ...]:
        """Raises ToolRefused for a blank query, else what `JsonClient` does; ValueError for no search answer too."""
        if not query.strip():
            raise ToolRefused("empty query")
        params: dict[str, Any] = {"q": query[:MAX_QUERY], "num": self._topk}
        if self._by_get:
            answer = await self._client.get("", {"engine": "google", **params})
        else:
            answer = await self._client.post("", params)
        try:
            return parse_results(answer, self._topk)
        except ValueError as error:
            raise ValueError(f"{self._name}: {error}") from None

    async def close(self) -> None:
        await self._client.close()


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
    pairs = attributes.items() if isinstance(attributes, dict) else ()
    facts = [f"{key}: {value}" for key, value in pairs if isinstance(value, (str, int, float))]
    texts = [entry.get(key) for key in ("answer", "snippet", "description")]
    text = _join([*texts, *facts], MAX_TEXT)
    if not text:
        return None
    link = entry.get("link")
    usable = isinstance(link, str) and link.startswith(("https://", "http://")) and plain_line(link, 500) == link
    return Document(
        id=str(link) if usable else f"web:{number}", contents=contents(_join([entry.get("title")], MAX_TITLE), text)
    )


def _join(parts: Iterable[object], limit: int) -> str:
    words = (plain_line(str(part), limit) for part in parts if isinstance(part, (str, int, float)))
    return " ".join(word for word in words if word)[:limit]


def plain_line(text: str, limit: int) -> str:
    """One line without markup, control characters or angle brackets, at most `limit` characters."""
    text = html.unescape(_MARKUP.sub(" ", text[: 4 * limit]))
    text = text.replace("<", "\u2039").replace(">", "\u203a")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:limit]
