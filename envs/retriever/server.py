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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from envs.retriever.batching import Batcher, Busy, Late, SearchFailed
from envs.retriever.config import RetrieverServerConfig
from envs.retriever.documents import Document
from envs.retriever.metrics import Measured, Metrics
from envs.retriever.retriever import Found, Retriever
from envs.tools.gate import Gate

RETRY_AFTER_S = 1


class Retrieve(BaseModel):
    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class SearchOne(BaseModel):
    query: str
    top_n: int = 10
    return_score: bool = False


class SearchMany(BaseModel):
    query: list[str]
    top_n: int = 10
    return_score: bool = False


def create_app(retriever: Retriever, config: RetrieverServerConfig, token: str | None) -> FastAPI:
    metrics = Metrics()
    batcher = Batcher(
        retriever.search_batch,
        metrics,
        max_batch=config.max_batch,
        max_queue=config.max_queue,
        cache_bytes=config.cache_mb << 20,
        deadline_s=config.deadline_s,
    )

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.close()

    app = FastAPI(title="rlsys retriever", lifespan=running, docs_url=None, redoc_url=None, openapi_url=None)

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

    @app.post("/retrieve")
    async def retrieve(request: Retrieve) -> Response:
        _check("topk", request.topk or 0, 0, config.max_topk)
        k = request.topk or config.topk
        _check("queries", len(request.queries), 0, most_queries(k))
        found = await find(request.queries, k)
        if request.return_scores:
            scored = [[{"document": _json(d), "score": score} for d, score in hits] for hits in found]
            return _answer({"result": scored})
        return _answer({"result": [_documents(hits) for hits in found]})

    @app.post("/search")
    async def search(request: SearchOne) -> Response:
        if not request.query.strip():
            raise HTTPException(status_code=400, detail="Query content cannot be empty")
        _check("top_n", request.top_n, 1, config.max_topk)
        (hits,) = await find([request.query], request.top_n)
        return _answer([_documents(hits), _scores(hits)] if request.return_score else _documents(hits))

    @app.post("/batch_search")
    async def batch_search(request: SearchMany) -> Response:
        _check("top_n", request.top_n, 1, config.max_topk)
        _check("query", len(request.query), 0, most_queries(request.top_n))
        found = await find(request.query, request.top_n)
        documents = [_documents(hits) for hits in found]
        return _answer([documents, [_scores(hits) for hits in found]] if request.return_score else documents)

    @app.get("/health")
    async def health() -> Response:
        stuck = batcher.stuck
        state = {"status": "unhealthy" if stuck else "healthy", "retrievers": {"total": 1, "available": int(not stuck)}}
        return _answer(state, 503 if stuck else 200)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.exception_handler(RequestValidationError)
    async def name_the_field(_: Request, error: RequestValidationError) -> Response:
        """FastAPI's 422 without the request's own text, which may be huge and need not be printable."""
        named = [{key: one[key] for key in ("type", "loc", "msg")} for one in error.errors()[:20]]
        return _answer({"detail": named}, 422)

    app.add_middleware(Gate, token=token, max_body_bytes=config.max_body_kb << 10, deadline_s=config.deadline_s)
    app.add_middleware(Measured, metrics=metrics)  # the last one added is the outermost
    return app


def _check(field: str, found: int, least: int, most: int) -> None:
    """422 in FastAPI's form where a number of the request is out of the config's limits."""
    if not least <= found <= most:
        message = f"found {found}, expected {least} to {most}"
        raise RequestValidationError([{"type": "limit", "loc": ("body", field), "msg": message}])


def _unavailable(detail: str) -> HTTPException:
    return HTTPException(status_code=503, detail=detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _json(document: Document) -> dict[str, str]:
    return {"id": document.id, "contents": document.contents}


def _documents(hits: Found) -> list[dict[str, str]]:
    return [_json(document) for document, _ in hits]


def _scores(hits: Found) -> list[float]:
    return [score for _, score in hits]


def _answer(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")
