"""The HTTP face of a retriever: Search-R1's /retrieve and ReSearch's /search, /batch_search and /health.

    POST /retrieve      {"queries": [..], "topk": 3, "return_scores": true}
                        -> {"result": [[{"document": {"id", "contents"}, "score"}, ..], ..]}, or the bare documents
    POST /search        {"query": "..", "top_n": 10, "return_score": false} -> [{"id", "contents"}, ..]
    POST /batch_search  {"query": [..], "top_n": 10, "return_score": false} -> [[{"id", "contents"}, ..], ..]
                        with return_score: [documents, scores]
    GET /health         {"status": "healthy", "retrievers": {"total": 1, "available": 1}}
    GET /metrics        Prometheus

The authors' /retrieve fails where `return_scores` is false (it unpacks two values out of one); here it gives what that
code meant, documents without scores.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, FailFast, ValidationError
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from envs.services.gate import Admission, Headers, Refused, answer
from envs.services.retriever.batching import Batcher, Busy, Late, SearchFailed
from envs.services.retriever.config import RetrieverServerConfig
from envs.services.retriever.metrics import CLIENT_GONE, Metrics
from envs.services.retriever.retriever import Encoded, Retriever

JSON: Headers = [(b"content-type", b"application/json")]
TEXT: Headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
HIT_BYTES = 200  # of a hit in the cache, besides its document: a pair, its parts' heads, the score
RETRY_AFTER_S = 1
# Only the first that is not a text is named: a body of 2 MiB holds a million of them, and to list them took 1 GB.
Queries = Annotated[list[str], FailFast()]


class Retrieve(BaseModel):
    queries: Queries
    topk: int | None = None
    return_scores: bool = False


class SearchOne(BaseModel):
    query: str
    top_n: int = 10
    return_score: bool = False


class SearchMany(BaseModel):
    query: Queries
    top_n: int = 10
    return_score: bool = False


Schema = TypeVar("Schema", bound=BaseModel)


class Reply(NamedTuple):
    body: bytes
    status: int = 200
    headers: Headers = JSON


@asynccontextmanager
async def opened(retriever: Retriever, config: RetrieverServerConfig, token: str | None) -> AsyncIterator[RetrieverApp]:
    """The app, as long as its event loop runs."""
    app = RetrieverApp(retriever, config, token)
    app.batcher.start()
    try:
        yield app
    finally:
        app.hangs = not await app.batcher.close()


class RetrieverApp:
    """One plain ASGI function: a framework's own work on a request would take longer than a BM25 search."""

    def __init__(self, retriever: Retriever, config: RetrieverServerConfig, token: str | None) -> None:
        self._config = config
        self._metrics = Metrics()
        self._admission = Admission(token=token, max_body_bytes=config.max_body_kb << 10, deadline_s=config.deadline_s)
        self.batcher: Batcher[Encoded] = Batcher(
            retriever.search_encoded,
            self._metrics,
            max_batch=config.max_batch,
            max_queue=config.max_queue,
            cache_bytes=config.cache_mb << 20,
            deadline_s=config.deadline_s,
            size=_size,
            searchers=retriever.searchers,
            enter_thread=retriever.enter_thread,
            in_loop=retriever.may_be_brief,
        )
        self.hangs = False  # a search that did not end in time when the app was closed
        self._gets = {"/health": self._health, "/metrics": self._show_metrics}
        self._posts = {"/retrieve": self._retrieve, "/search": self._search, "/batch_search": self._batch_search}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        path = scope["path"].rstrip("/")
        route = path if path in self._posts or path in self._gets else "other"  # any path may be asked for
        status = 500
        try:
            reply: Reply | Refused
            try:
                body = await self._admission.body(scope, receive)
                if body is None:
                    status = CLIENT_GONE
                    return
                reply = await self._reply(route, scope, body)
            except Refused as refused:
                reply = refused
            status = reply.status
            await answer(send, status, reply.headers, reply.body)
        finally:
            self._metrics.request(route, status, time.perf_counter() - started)

    async def _reply(self, route: str, scope: Scope, body: bytes) -> Reply:
        method = scope["method"]
        if (post := self._posts.get(route)) is not None:
            if method != "POST":
                raise Refused(405, "Method Not Allowed", (b"allow", b"POST"))
            kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
            return Reply(await post(body, kind.decode("latin-1")))
        if (get := self._gets.get(route)) is not None:
            if method not in ("GET", "HEAD"):
                raise Refused(405, "Method Not Allowed", (b"allow", b"GET, HEAD"))
            return get()
        raise Refused(404, "Not Found")

    async def _retrieve(self, body: bytes, kind: str) -> bytes:
        asked = read(body, kind, Retrieve)
        _check("topk", asked.topk or 0, 0, self._config.max_topk)
        k = asked.topk or self._config.topk
        _check("queries", len(asked.queries), 0, self._most_queries(k))
        found = await self._find(asked.queries, k)
        if asked.return_scores:
            return b'{"result":%b}' % _list(
                _list(b'{"document":%b,"score":%b}' % hit for hit in hits) for hits in found
            )
        return b'{"result":%b}' % _list(map(_documents, found))

    async def _search(self, body: bytes, kind: str) -> bytes:
        asked = read(body, kind, SearchOne)
        if not asked.query.strip():
            raise Refused(400, "Query content cannot be empty")
        _check("top_n", asked.top_n, 1, self._config.max_topk)
        (hits,) = await self._find([asked.query], asked.top_n)
        return _list([_documents(hits), _scores(hits)]) if asked.return_score else _documents(hits)

    async def _batch_search(self, body: bytes, kind: str) -> bytes:
        asked = read(body, kind, SearchMany)
        _check("top_n", asked.top_n, 1, self._config.max_topk)
        _check("query", len(asked.query), 0, self._most_queries(asked.top_n))
        found = await self._find(asked.query, asked.top_n)
        documents = _list(map(_documents, found))
        return _list([documents, _list(map(_scores, found))]) if asked.return_score else documents

    def _health(self) -> Reply:
        stuck = self.batcher.stuck
        state = {"status": "unhealthy" if stuck else "healthy", "retrievers": {"total": 1, "available": int(not stuck)}}
        return Reply(to_json(state), 503 if stuck else 200)

    def _show_metrics(self) -> Reply:
        return Reply(self._metrics.text(), headers=TEXT)

    def _most_queries(self, k: int) -> int:
        return min(self._config.max_queries, self._config.max_documents // k)

    async def _find(self, queries: Sequence[str], k: int) -> list[Encoded]:
        most = self._config.max_query_chars
        long = sum(len(query) > most for query in queries)
        if long:
            self._metrics.cut.inc(long)
            queries = [query[:most] for query in queries]
        try:
            return await self.batcher.search(queries, k)
        except Busy:
            raise _unavailable(f"no more than {self._config.max_queue} queries may wait") from None
        except Late:
            raise _unavailable(f"not answered within {self._config.deadline_s:g} s") from None
        except SearchFailed as error:
            raise Refused(500, f"the search failed: {error}") from error


def read(body: bytes, content_type: str, schema: type[Schema]) -> Schema:
    """The body, by FastAPI's rules. Raises Refused: 422 in FastAPI's form, or 400 for what Python cannot read."""
    content: Any = body
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    try:
        if content and kind == "application" and (subtype == "json" or subtype.endswith("+json")):
            try:
                return schema.model_validate_json(content)
            except ValidationError:  # or half of a surrogate pair, which only Python's own parser takes
                content = json.loads(content)
        if content is None or content == b"":
            raise _invalid("missing", (), "Field required")
        return schema.model_validate(content, from_attributes=True)  # bytes where they are not said to be JSON
    except ValidationError as error:
        # Without the request's own text, which may be huge and need not be printable.
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise Refused(422, [{**one, "loc": ("body", *one["loc"])} for one in found]) from error
    except json.JSONDecodeError as error:
        raise _invalid("json_invalid", (error.pos,), "JSON decode error", ctx={"error": error.msg}) from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, "There was an error parsing the body") from error


def _check(field: str, found: int, least: int, most: int) -> None:
    """422 where a number of the request is out of the config's limits."""
    if not least <= found <= most:
        raise _invalid("limit", (field,), f"found {found}, expected {least} to {most}")


def _invalid(kind: str, where: tuple[str | int, ...], message: str, **more: Any) -> Refused:
    return Refused(422, [{"type": kind, "loc": ("body", *where), "msg": message, **more}])


def _unavailable(detail: str) -> Refused:
    return Refused(503, detail, (b"retry-after", b"%d" % RETRY_AFTER_S))


def _documents(hits: Encoded) -> bytes:
    return _list(document for document, _ in hits)


def _scores(hits: Encoded) -> bytes:
    return _list(score for _, score in hits)


def _list(parts: Iterable[bytes]) -> bytes:
    return b"[%b]" % b",".join(parts)


def _size(hits: Encoded) -> int:
    return sum(HIT_BYTES + len(document) for document, _ in hits)
