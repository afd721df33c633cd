"""The HTTP face of a judge.

    POST /judge        {"kind": "process", "fields": {"question": "..", ..}, "seed": 0}
                       -> {"verdict": "GOOD", "accepted": true, "text": "..", "cached": false, "cut": false,
                            "seconds": 0.8}
    POST /judge_batch  {"requests": [{"kind", "fields", "seed"}, ..]} -> {"results": [the same, or {"error": ".."}, ..]}
    GET /health        {"status": "healthy", "model": ".."}; "waiting" while the endpoint behind it is out, and 503 when
                       its own engine is: only that is mended by a restart
    GET /metrics       Prometheus

`verdict` and `accepted` are null for an answer without a verdict, such as one that was cut at its limit of tokens;
action prompting has `parts` too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import BaseModel, FailFast
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response

from envs.services.app import HttpRefusal, Post, check_number, invalid_request, make_app, service_unavailable
from envs.services.guard import ToolFailed
from envs.services.judge.judge import Judge
from envs.services.judge.request import Judged, JudgeRequest
from envs.services.judge.templates import BadRequest
from envs.services.judge.templates import check_request as check_request
from rlsys.errors import require
from rlsys.types import FailureKind

RETRY_AFTER_S = 5
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class JudgeServerConfig:
    """Limits of the judge's HTTP server."""

    max_queue: int = 1024
    """Number of questions that may wait or be in flight. A request that would exceed it is refused (503 with
    Retry-After)."""
    max_batch: int = 256
    """Largest number of questions in one request; more are refused (422)."""
    max_body_kb: int = 4096
    """Largest request body, in KiB; a larger one is refused (413)."""
    arrive_s: float = 30.0
    """Time limit for a request to arrive completely, in seconds; a slower one is refused (408)."""

    def __post_init__(self) -> None:
        fits = 1 <= self.max_batch <= self.max_queue
        require(fits, "max_batch", self.max_batch, f"1 to max_queue={self.max_queue}, or it could never be served")
        require(self.max_body_kb >= 1, "max_body_kb", self.max_body_kb, "at least 1")
        require(self.arrive_s > 0, "arrive_s", self.arrive_s, "above 0")


class SingleRequest(BaseModel):
    kind: str
    fields: dict[str, str]
    seed: int = 0


class BatchRequest(BaseModel):
    requests: Annotated[list[SingleRequest], FailFast()]


def make_judge_app(judge: Judge, config: JudgeServerConfig, token: str | None) -> Starlette:
    inside = 0

    @contextmanager
    def load(count: int) -> Iterator[None]:
        """Questions in the service. What would exceed the limit is refused at once."""
        nonlocal inside
        if inside + count > config.max_queue:
            raise service_unavailable(f"{config.max_queue} questions are waiting already", RETRY_AFTER_S)
        inside += count
        try:
            yield
        finally:
            inside -= count

    async def judge_one(body: SingleRequest) -> bytes:
        request = _make_request(body)
        with load(1):
            try:
                return json.dumps(make_answer(await judge.ask(request, body.seed))).encode()
            except ToolFailed as failed:
                if failed.failure.kind is FailureKind.DATA:
                    raise HttpRefusal(400, failed.failure.detail) from failed
                raise service_unavailable(failed.failure.detail, RETRY_AFTER_S) from failed

    async def judge_many(body: BatchRequest) -> bytes:
        check_number("requests", len(body.requests), 0, config.max_batch)
        requests = [_make_request(single, "requests", index) for index, single in enumerate(body.requests)]

        async def ask(request: JudgeRequest, seed: int) -> dict[str, Any]:
            try:
                return make_answer(await judge.ask(request, seed))
            except ToolFailed as failed:
                return {"error": failed.failure.detail, "kind": str(failed.failure.kind)}

        with load(len(requests)):
            asks = (ask(request, single.seed) for request, single in zip(requests, body.requests, strict=True))
            return json.dumps({"results": await asyncio.gather(*asks)}).encode()

    def health() -> Response:
        status = "unhealthy" if judge.broken else "waiting" if judge.stats().breaker_open else "healthy"
        return JSONResponse({"status": status, "model": judge.model}, 503 if judge.broken else 200)

    registry = CollectorRegistry()
    registry.register(_JudgeCollector(judge))
    posts: dict[str, Post] = {"/judge": (SingleRequest, judge_one), "/judge_batch": (BatchRequest, judge_many)}
    return make_app("judge", posts, health, registry, token=token, max_body_bytes=config.max_body_kb << 10)


class _JudgeCollector:
    """What the judge counted, read when /metrics is asked."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def collect(self) -> Iterator[Metric]:
        for name, value in self._judge.stats().row().items():
            yield GaugeMetricFamily(f"judge_{name}", "Since the start, or of now", value=value)
        verdicts = GaugeMetricFamily("judge_verdicts", "Since the start", labels=["kind", "verdict"])
        for name, count in sorted(self._judge.verdicts.items()):
            verdicts.add_metric(name.split(" "), float(count))
        yield verdicts


def _make_request(body: SingleRequest, *where: str | int) -> JudgeRequest:
    check_number("seed", body.seed, 0, MAX_SEED, *where)
    request = JudgeRequest(kind=body.kind, fields=body.fields)
    try:
        check_request(request)
    except BadRequest as error:
        raise invalid_request("request", (*where, *error.field), error.message) from error
    return request


def make_answer(judged: Judged) -> dict[str, Any]:
    verdict = judged.verdict
    answer: dict[str, Any] = {
        "verdict": verdict.value if verdict is not None else None,
        "accepted": verdict.accepted if verdict is not None else None,
        "text": judged.text,
        "cached": judged.cached,
        "cut": judged.cut,
        "seconds": round(judged.seconds, 4),
    }
    answer |= {"first": True} if judged.first else {}
    return answer | ({"parts": dict(verdict.parts)} if verdict is not None and verdict.parts else {})
