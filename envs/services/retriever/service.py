"""A retriever as an HTTP service: Search-R1's /retrieve and ReSearch's /search, /batch_search and /health.

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

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NoReturn

from prometheus_client import CollectorRegistry
from pydantic import BaseModel, FailFast
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response

from envs.services.app import HttpRefusal, Post, check_number, make_app, service_unavailable
from envs.services.http import HttpService, serve_until_signal
from envs.services.retriever.batching import Batcher, Busy, DeadlineExceeded, Metrics, SearchFailed
from envs.services.retriever.config import RetrieverServerConfig
from envs.services.retriever.corpus import Corpus, FileCorpus
from envs.services.retriever.index import Progress, no_progress
from envs.services.retriever.retriever import Encoded, Retriever, make_retriever
from envs.services.secrets import read_secret

WARM_UP = "a query before the first query"
HIT_BYTES = 200  # of a hit in the cache, in addition to its document: a pair, its parts' heads, the score
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


class RetrieverApp:
    """`async with RetrieverApp(..) as app`: an ASGI app, for this event loop."""

    def __init__(self, retriever: Retriever, config: RetrieverServerConfig, token: str | None) -> None:
        registry = CollectorRegistry()
        self._config = config
        self._metrics = Metrics(registry)
        self.batcher: Batcher[Encoded] = Batcher(
            retriever.search_encoded,
            self._metrics,
            max_batch=config.max_batch,
            max_queue=config.max_queue,
            cache_bytes=config.cache_mb << 20,
            deadline_s=config.deadline_s,
            size=_cached_bytes,
            searchers=retriever.searchers,
            enter_thread=retriever.enter_thread,
            in_loop=retriever.may_be_brief,
        )
        self.hangs = False  # a search that did not end in time: its thread would keep the process
        posts: dict[str, Post] = {
            "/retrieve": (Retrieve, self._retrieve),
            "/search": (SearchOne, self._search),
            "/batch_search": (SearchMany, self._batch_search),
        }
        limit = config.max_body_kb << 10
        self._asgi = make_app("retriever", posts, self._health, registry, token=token, max_body_bytes=limit)

    async def __aenter__(self) -> Starlette:
        self.batcher.start()
        return self._asgi

    async def __aexit__(self, *_: object) -> None:
        self.hangs = not await self.batcher.close()

    async def _retrieve(self, body: Retrieve) -> bytes:
        check_number("topk", body.topk or 0, 0, self._config.max_topk)
        k = body.topk or self._config.topk
        check_number("queries", len(body.queries), 0, self._most_queries(k))
        results = await self._search_or_refuse(body.queries, k)
        if body.return_scores:
            return b'{"result":%b}' % _json_array(
                _json_array(b'{"document":%b,"score":%b}' % hit for hit in hits) for hits in results
            )
        return b'{"result":%b}' % _json_array(map(_documents_json, results))

    async def _search(self, body: SearchOne) -> bytes:
        if not body.query.strip():
            raise HttpRefusal(400, "Query content cannot be empty")
        check_number("top_n", body.top_n, 1, self._config.max_topk)
        (hits,) = await self._search_or_refuse([body.query], body.top_n)
        return (
            _json_array([_documents_json(hits), _scored_documents_json(hits)])
            if body.return_score
            else _documents_json(hits)
        )

    async def _batch_search(self, body: SearchMany) -> bytes:
        check_number("top_n", body.top_n, 1, self._config.max_topk)
        check_number("query", len(body.query), 0, self._most_queries(body.top_n))
        results = await self._search_or_refuse(body.query, body.top_n)
        documents = _json_array(map(_documents_json, results))
        return (
            _json_array([documents, _json_array(map(_scored_documents_json, results))])
            if body.return_score
            else documents
        )

    def _health(self) -> Response:
        stuck = self.batcher.stuck
        state = {"status": "unhealthy" if stuck else "healthy", "retrievers": {"total": 1, "available": int(not stuck)}}
        return JSONResponse(state, 503 if stuck else 200)

    def _most_queries(self, k: int) -> int:
        return min(self._config.max_queries, self._config.max_documents // k)

    async def _search_or_refuse(self, queries: Sequence[str], k: int) -> list[Encoded]:
        most = self._config.max_query_chars
        long = sum(len(query) > most for query in queries)
        if long:
            self._metrics.cut.inc(long)
            queries = [query[:most] for query in queries]
        try:
            return await self.batcher.search(queries, k)
        except Busy:
            raise service_unavailable(
                f"no more than {self._config.max_queue} queries may wait", RETRY_AFTER_S
            ) from None
        except DeadlineExceeded:
            raise service_unavailable(f"not answered within {self._config.deadline_s:g} s", RETRY_AFTER_S) from None
        except SearchFailed as error:
            raise HttpRefusal(500, f"the search failed: {error}") from error


def _documents_json(hits: Encoded) -> bytes:
    return _json_array(document for document, _ in hits)


def _scored_documents_json(hits: Encoded) -> bytes:
    return _json_array(score for _, score in hits)


def _json_array(parts: Iterable[bytes]) -> bytes:
    return b"[%b]" % b",".join(parts)


def _cached_bytes(hits: Encoded) -> int:
    return sum(HIT_BYTES + len(document) for document, _ in hits)


class RetrieverServer(HttpService):
    """The port is taken at once, before a corpus is read or an encoder loaded.

    `start` raises BadInput for whatever of the config cannot be used.
    """

    def __init__(
        self, config: RetrieverServerConfig, progress: Progress = no_progress, *, token: str | None = None
    ) -> None:
        """`token` stands in for the one that `config.token_env` names."""
        self._config = config
        self._progress = progress
        self._token = read_secret("--token-env", config.token_env) if token is None else token
        self._app: RetrieverApp | None = None
        waits = {"arrive_s": config.arrive_s, "stop_s": config.deadline_s}
        limit = config.max_body_kb << 10
        super().__init__(
            "retriever server", self._open, host=config.host, port=config.port, max_body_bytes=limit, **waits
        )

    def start(self, corpus: Corpus | None = None) -> str:
        """Load, warm up, listen; returns the url. `corpus` stands in for the config's file."""
        config = self._config
        try:
            corpus = corpus or FileCorpus(config.corpus)
            size = config.cache_mb << 20
            retriever = make_retriever(config.retriever, corpus, self._progress, cache_bytes=size)
            retriever.search_encoded([WARM_UP], config.topk)
            self._app = RetrieverApp(retriever, config, self._token)
            return super().start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """Refuse new requests, answer those under way, end the thread. False where a search hangs and it cannot end."""
        return super().stop() and not (self._app is not None and self._app.hangs)

    def _open(self) -> RetrieverApp:
        assert self._app is not None, "loaded before the thread starts"
        return self._app


def serve(
    config: RetrieverServerConfig, say: Callable[[str], None] = print, progress: Progress = no_progress
) -> NoReturn:
    """Serve until SIGINT or SIGTERM; then answer what is under way and exit with 130 or 143. Raises BadInput."""

    def started(url: str) -> None:
        say(f"retriever ({config.retriever.kind}) on {url}: POST /retrieve /search /batch_search, GET /health /metrics")

    serve_until_signal(RetrieverServer(config, progress), started)
