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
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, FailFast, ValidationError
from pydantic_core import PydanticSerializationError, to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from envs.retriever.batching import Batcher, Busy, Late, SearchFailed
from envs.retriever.config import RetrieverServerConfig
from envs.retriever.documents import Document
from envs.retriever.metrics import Measured, Metrics
from envs.retriever.retriever import Found, Retriever
from envs.tools.gate import Gate

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


class Invalid(Exception):
    """422 in FastAPI's form: `type`, `loc`, `msg` of each error."""

    def __init__(self, errors: Sequence[dict[str, Any]]) -> None:
        self.errors = errors


def create_app(retriever: Retriever, config: RetrieverServerConfig, token: str | None) -> Starlette:
    """Starlette alone: FastAPI's own work on a request and its answer would take longer than a BM25 search."""
    metrics = Metrics()
    batcher = Batcher(
        retriever.search_batch,
        metrics,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        cache_bytes=config.cache_mb << 20,
        deadline_s=config.deadline_s,
        searchers=retriever.searchers,
        enter_thread=retriever.enter_thread,
    )

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        batcher.start()
        yield
        app.state.hangs = not await batcher.close()

    async def find(queries: Sequence[str], k: int) -> list[Found]:
        long = sum(len(query) > config.max_query_chars for query in queries)
        if long:
            metrics.cut.inc(long)
        try:
            return await batcher.search([query[: config.max_query_chars] for query in queries], k)
        except Busy:
            raise _unavailable(f"no more than {config.max_queue} queries may wait") from None
        except Late:
            raise _unavailable(f"not answered within {config.deadline_s:g} s") from None
        except SearchFailed as error:
            raise HTTPException(status_code=500, detail=f"the search failed: {error}") from error

    def most_queries(k: int) -> int:
        return min(config.max_queries, config.max_documents // k)

    async def retrieve(request: Request) -> Response:
        asked = await _read(request, Retrieve)
        _check("topk", asked.topk or 0, 0, config.max_topk)
        k = asked.topk or config.topk
        _check("queries", len(asked.queries), 0, most_queries(k))
        found = await find(asked.queries, k)
        if asked.return_scores:
            scored = [[{"document": _json(d), "score": score} for d, score in hits] for hits in found]
            return _answer({"result": scored})
        return _answer({"result": [_documents(hits) for hits in found]})

    async def search(request: Request) -> Response:
        asked = await _read(request, SearchOne)
        if not asked.query.strip():
            raise HTTPException(status_code=400, detail="Query content cannot be empty")
        _check("top_n", asked.top_n, 1, config.max_topk)
        (hits,) = await find([asked.query], asked.top_n)
        return _answer([_documents(hits), _scores(hits)] if asked.return_score else _documents(hits))

    async def batch_search(request: Request) -> Response:
        asked = await _read(request, SearchMany)
        _check("top_n", asked.top_n, 1, config.max_topk)
        _check("query", len(asked.query), 0, most_queries(asked.top_n))
        found = await find(asked.query, asked.top_n)
        documents = [_documents(hits) for hits in found]
        return _answer([documents, [_scores(hits) for hits in found]] if asked.return_score else documents)

    async def health(_: Request) -> Response:
        stuck = batcher.stuck
        state = {"status": "unhealthy" if stuck else "healthy", "retrievers": {"total": 1, "available": int(not stuck)}}
        return _answer(state, 503 if stuck else 200)

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return Starlette(
        routes=[
            Route("/retrieve", retrieve, methods=["POST"]),
            Route("/search", search, methods=["POST"]),
            Route("/batch_search", batch_search, methods=["POST"]),
            Route("/health", health),
            Route("/metrics", show_metrics),
        ],
        middleware=[
            Middleware(Measured, metrics=metrics),
            Middleware(Gate, token=token, max_body_bytes=config.max_body_kb << 10, deadline_s=config.deadline_s),
        ],
        exception_handlers={Invalid: _show_invalid, HTTPException: _show_refusal},
        lifespan=running,
    )


async def _read(request: Request, schema: type[Schema]) -> Schema:
    """The body, by FastAPI's rules. Raises Invalid (422), or HTTPException (400) for what Python cannot read."""
    content: Any = await request.body()
    kind, _, subtype = request.headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
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
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise Invalid([{**one, "loc": ("body", *one["loc"])} for one in found]) from error
    except json.JSONDecodeError as error:
        raise _invalid("json_invalid", (error.pos,), "JSON decode error", ctx={"error": error.msg}) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(status_code=400, detail="There was an error parsing the body") from error


def _check(field: str, found: int, least: int, most: int) -> None:
    """422 where a number of the request is out of the config's limits."""
    if not least <= found <= most:
        raise _invalid("limit", (field,), f"found {found}, expected {least} to {most}")


def _invalid(kind: str, where: tuple[str | int, ...], message: str, **more: Any) -> Invalid:
    return Invalid([{"type": kind, "loc": ("body", *where), "msg": message, **more}])


def _unavailable(detail: str) -> HTTPException:
    return HTTPException(status_code=503, detail=detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _show_invalid(_: Request, error: Exception) -> Response:
    """Without the request's own text, which may be huge and need not be printable."""
    assert isinstance(error, Invalid)
    return _answer({"detail": error.errors}, 422)


def _show_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer({"detail": error.detail}, error.status_code, error.headers)


def _json(document: Document) -> dict[str, str]:
    return {"id": document.id, "contents": document.contents}


def _documents(hits: Found) -> list[dict[str, str]]:
    return [_json(document) for document, _ in hits]


def _scores(hits: Found) -> list[float]:
    return [score for _, score in hits]


def _answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    try:
        body = to_json(content)
    except PydanticSerializationError:  # half of a surrogate pair in an error's text
        body = json.dumps(content).encode()
    return Response(body, status, headers, media_type="application/json")
