"""The HTTP face of a judge.

    POST /judge        {"kind": "process", "fields": {"question": "..", ..}, "seed": 0}
                       -> {"verdict": "GOOD", "accepted": true, "text": "..", "cached": false, "seconds": 0.8}
    POST /judge_batch  {"requests": [{"kind", "fields", "seed"}, ..]} -> {"results": [the same, or {"error": ".."}, ..]}
    GET /health        {"status": "healthy", "model": ".."}; "waiting" while the endpoint behind it is out, and 503 when
                       its own engine is: only that is mended by a restart
    GET /metrics       Prometheus

`verdict` and `accepted` are null for an answer without a verdict; action prompting has `parts` too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import BaseModel

from envs.services.gate import Gate
from envs.services.guard import ToolFailed
from envs.services.judge.judge import Judge
from envs.services.judge.request import Judged, JudgeRequest
from envs.services.judge.templates import BadRequest, check
from rlsys.errors import require
from rlsys.types import FailureKind

RETRY_AFTER_S = 5
ROUTES = ("/judge", "/judge_batch", "/health", "/metrics")
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class JudgeServerConfig:
    max_queue: int = 1024
    """Questions that wait or are under way; a request that would exceed it is refused (503 with Retry-After)."""
    max_batch: int = 256
    """Questions per request; more are refused (422)."""
    max_body_kb: int = 4096
    """A larger request is refused (413)."""
    body_deadline_s: float = 30.0
    """For a request's body to arrive."""

    def __post_init__(self) -> None:
        fits = 1 <= self.max_batch <= self.max_queue
        require(fits, "max_batch", self.max_batch, f"1 to max_queue={self.max_queue}, or it could never be served")
        require(self.max_body_kb >= 1, "max_body_kb", self.max_body_kb, "at least 1")
        require(self.body_deadline_s > 0, "body_deadline_s", self.body_deadline_s, "above 0")


class One(BaseModel):
    kind: str
    fields: dict[str, str]
    seed: int = 0


class Many(BaseModel):
    requests: list[One]


def create_app(judge: Judge, config: JudgeServerConfig, token: str | None) -> FastAPI:
    app = FastAPI(title="rlsys judge", docs_url=None, redoc_url=None, openapi_url=None)
    metrics = _Metrics(judge)
    load = _Load(config.max_queue)

    @app.post("/judge")
    async def judge_one(asked: One) -> Response:
        request = _request(asked, ())
        with load.take(1):
            try:
                return _answer(_shown(await judge.ask(request, asked.seed)))
            except ToolFailed as failed:
                raise _refused(failed) from failed

    @app.post("/judge_batch")
    async def judge_many(asked: Many) -> Response:
        if len(asked.requests) > config.max_batch:
            raise _invalid(("requests",), f"found {len(asked.requests)}, expected at most {config.max_batch}")
        requests = [_request(one, ("requests", index)) for index, one in enumerate(asked.requests)]

        async def ask(request: JudgeRequest, seed: int) -> dict[str, Any]:
            try:
                return _shown(await judge.ask(request, seed))
            except ToolFailed as failed:
                return {"error": failed.failure.detail, "kind": str(failed.failure.kind)}

        with load.take(len(requests)):
            asks = (ask(request, one.seed) for request, one in zip(requests, asked.requests, strict=True))
            return _answer({"results": await asyncio.gather(*asks)})

    @app.get("/health")
    async def health() -> Response:
        status = "unhealthy" if judge.broken else "waiting" if judge.stats().breaker_open else "healthy"
        return _answer({"status": status, "model": judge.model}, 503 if judge.broken else 200)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.exception_handler(RequestValidationError)
    async def name_the_field(_: Request, error: RequestValidationError) -> Response:
        """FastAPI's 422 without the request's own text, which may be huge and need not be printable."""
        named = [{key: one[key] for key in ("type", "loc", "msg")} for one in error.errors()[:20]]
        return _answer({"detail": named}, 422)

    @app.middleware("http")
    async def count(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await go_on(request)
        route = request.url.path if request.url.path in ROUTES else "other"  # any path may be asked for
        metrics.requests.labels(route, str(response.status_code)).inc()
        return response

    app.add_middleware(Gate, token=token, max_body_bytes=config.max_body_kb << 10, deadline_s=config.body_deadline_s)
    return app


class _Load:
    """Questions in the service. What would exceed the limit is refused at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._now = 0

    def take(self, count: int) -> _Taken:
        if self._now + count > self._limit:
            raise _unavailable(f"{self._limit} questions are waiting already")
        return _Taken(self, count)

    def add(self, count: int) -> None:
        self._now += count


@dataclass(frozen=True, slots=True)
class _Taken:
    load: _Load
    count: int

    def __enter__(self) -> None:
        self.load.add(self.count)

    def __exit__(self, *_: object) -> None:
        self.load.add(-self.count)


class _Metrics:
    """What the judge counted, read when asked."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "judge_requests", "HTTP requests by route and status", ["route", "status"], registry=self._registry
        )
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        for name, value in self._judge.stats().row().items():
            yield GaugeMetricFamily(f"judge_{name}", "Since the start, or of now", value=value)
        verdicts = GaugeMetricFamily("judge_verdicts", "Since the start", labels=["kind", "verdict"])
        for name, count in sorted(self._judge.verdicts.items()):
            verdicts.add_metric(name.split(" "), float(count))
        yield verdicts

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _request(asked: One, where: tuple[str | int, ...]) -> JudgeRequest:
    if not 0 <= asked.seed <= MAX_SEED:
        raise _invalid((*where, "seed"), f"expected 0 to {MAX_SEED}")
    request = JudgeRequest(kind=asked.kind, fields=asked.fields)
    try:
        check(request)
    except BadRequest as error:
        raise _invalid((*where, *error.field), error.message) from error
    return request


def _shown(judged: Judged) -> dict[str, Any]:
    verdict = judged.verdict
    shown: dict[str, Any] = {
        "verdict": verdict.value if verdict is not None else None,
        "accepted": verdict.accepted if verdict is not None else None,
        "text": judged.text,
        "cached": judged.cached,
        "seconds": round(judged.seconds, 4),
    }
    return shown | ({"parts": dict(verdict.parts)} if verdict is not None and verdict.parts else {})


def _invalid(where: tuple[str | int, ...], message: str) -> RequestValidationError:
    return RequestValidationError([{"type": "request", "loc": ("body", *where), "msg": message}])


def _refused(failed: ToolFailed) -> HTTPException:
    if failed.failure.kind is FailureKind.DATA:
        return HTTPException(status_code=400, detail=failed.failure.detail)
    return _unavailable(failed.failure.detail)


def _unavailable(detail: str) -> HTTPException:
    return HTTPException(status_code=503, detail=detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _answer(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")
