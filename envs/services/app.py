"""What both services are made of: a Starlette with a token, a size limit, errors in FastAPI's form, and metrics.

`envs.services.limits` bounds the head of a request and its time. docs/results/retriever.md has what Starlette costs,
and what FastAPI would.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Schema = TypeVar("Schema", bound=BaseModel)
Post = tuple[type[BaseModel], Callable[[Any], Awaitable[bytes]]]  # what the body must be, and what answers it in JSON

TEXT = "text/plain; version=0.0.4; charset=utf-8"
CLIENT_GONE = 499  # nginx's number: the client had closed the connection
MAX_ERRORS = 20  # that are named of one body
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class ErrorResponse(JSONResponse):
    """An error's body. Half of a surrogate pair, which a client may have sent, is escaped: UTF-8 has none."""

    def render(self, content: Any) -> bytes:
        return json.dumps({"detail": content}).encode()


class HttpRefusal(Exception):
    """An answer instead of the handler's."""

    def __init__(self, status: int, detail: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail)
        self.response = ErrorResponse(detail, status, headers)


def make_app(
    name: str,
    posts: Mapping[str, Post],
    health: Callable[[], Response],
    registry: CollectorRegistry,
    *,
    token: str | None,
    max_body_bytes: int,
) -> Starlette:
    """`posts` by path, `/health` and `/metrics`.

    `registry` holds what the service counts itself; one per app: two in a process do not add up.
    """

    async def get_health(_: Request) -> Response:
        return health()

    async def get_metrics(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": TEXT})

    async def refuse(_: Request, error: Exception) -> Response:
        if isinstance(error, HttpRefusal):
            return error.response
        if isinstance(error, HTTPException):
            return ErrorResponse(error.detail, error.status_code, error.headers)
        return Response(status_code=CLIENT_GONE)

    routes = [Route(path, _PostRoute(*handled, max_body_bytes), methods=["POST"]) for path, handled in posts.items()]
    routes += [Route("/health", get_health), Route("/metrics", get_metrics)]
    guards = [Middleware(_RequestMetrics, name, registry, {route.path for route in routes})]
    guards += [Middleware(_TokenCheck, token.encode())] if token is not None else []
    guards += [Middleware(_WholeRequestFirst)]
    errors: dict[Any, Any] = {error: refuse for error in (HttpRefusal, HTTPException, ClientDisconnect)}
    return Starlette(routes=routes, middleware=guards, exception_handlers=errors)


class _PostRoute:
    """A POST. Plain ASGI: Starlette's own handling of functions and of `max_body_size` would cost as much again."""

    def __init__(self, schema: type[BaseModel], handler: Callable[[Any], Awaitable[bytes]], most: int) -> None:
        self._schema = schema
        self._handler = handler
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._most:
                raise HttpRefusal(413, f"the request is larger than {self._most} bytes")
        payload = parse_body(bytes(body), request.headers.get("content-type", ""), self._schema)
        await Response(await self._handler(payload), media_type="application/json")(scope, receive, send)


class _RequestMetrics:
    """Requests by route and status, and how long each took."""

    def __init__(self, app: ASGIApp, name: str, registry: CollectorRegistry, paths: set[str]) -> None:
        self._app = app
        self._paths = paths
        requests = Counter(f"{name}_requests", "Requests by route and status", ["route", "status"], registry=registry)
        latency = Histogram(f"{name}_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=registry)
        # The library makes texts of the labels each time, which costs as much as all the rest of a count.
        self._requests, self._latency = cache(requests.labels), cache(latency.labels)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        path = scope["path"] = scope["path"].rstrip("/")
        route = path if path in self._paths else "other"  # any path may be asked for
        status = 500

        async def count(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            self._requests(route, status).inc()
            self._latency(route).observe(time.perf_counter() - started)


class _WholeRequestFirst:
    """No answer begins before the request has arrived: behind its answer uvicorn watches a request no longer, and never
    closes its connection. The token's refusal closes it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = False

        async def receive_part() -> Message:
            nonlocal whole
            message = await receive()
            whole = not message.get("more_body", False)  # nor when the client is gone
            return message

        async def answer(message: Message) -> None:
            while not whole:
                await receive_part()
            await send(message)

        await self._app(scope, receive_part, answer)


class _TokenCheck:
    def __init__(self, app: ASGIApp, token: bytes) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        is_valid = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        # A liveness probe has no token. RFC 9110: a scheme has no case.
        if scope["path"] == "/health" or (is_valid and scheme.lower() == "bearer"):
            await self._app(scope, receive, send)
        else:
            headers = {"connection": "close", "www-authenticate": "Bearer"}
            await ErrorResponse("a bearer token is needed", 401, headers)(scope, receive, send)


def parse_body(body: bytes, content_type: str, schema: type[Schema]) -> Schema:
    """The body, by FastAPI's rules. Raises HttpRefusal: 422 in FastAPI's form, or 400 for what Python cannot read."""
    content: Any = body
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    try:
        if content and kind == "application" and (subtype == "json" or subtype.endswith("+json")):
            try:
                return schema.model_validate_json(content)
            except ValidationError:  # or half of a surrogate pair, which only Python's own parser takes
                content = json.loads(content)
        if content is None or content == b"":
            raise invalid_request("missing", (), "Field required")
        return schema.model_validate(content, from_attributes=True)  # bytes where they are not said to be JSON
    except ValidationError as error:
        # Without the request's own text, which may be huge and need not be printable.
        errors = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]
        raise HttpRefusal(422, [{**detail, "loc": ("body", *detail["loc"])} for detail in errors]) from error
    except json.JSONDecodeError as error:
        raise invalid_request("json_invalid", (error.pos,), "JSON decode error", ctx={"error": error.msg}) from error
    except (ValueError, RecursionError) as error:
        raise HttpRefusal(400, "There was an error parsing the body") from error


def check_number(field: str, number: int, least: int, most: int, *where: str | int) -> None:
    """422 where a number of the request is out of the config's limits."""
    if not least <= number <= most:
        raise invalid_request("limit", (*where, field), f"found {number}, expected {least} to {most}")


def invalid_request(kind: str, where: tuple[str | int, ...], message: str, **more: Any) -> HttpRefusal:
    return HttpRefusal(422, [{"type": kind, "loc": ("body", *where), "msg": message, **more}])


def service_unavailable(detail: str, after_s: int) -> HttpRefusal:
    return HttpRefusal(503, detail, {"retry-after": str(after_s)})
