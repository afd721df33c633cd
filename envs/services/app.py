"""What both services are made of: a table of routes behind a token and a size limit, JSON errors, metrics.

One plain ASGI function. Starlette's own work on a request would cost the retriever a sixth of its answers per second
(docs/retriever.md). When a request is late or has too long a head is `envs.services.http`'s to say.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel, ValidationError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Schema = TypeVar("Schema", bound=BaseModel)
Post = tuple[type[BaseModel], Callable[[Any], Awaitable[bytes]]]  # what the body must be, and what answers it in JSON

JSON: Headers = [(b"content-type", b"application/json")]
TEXT: Headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
CLOSE = (b"connection", b"close")
REFUSED = "rlsys.refused"  # in a request's scope, the status with which the connection was refused meanwhile
CLIENT_GONE = 499  # nginx's number: nobody was left to answer
DISCARDED = 16  # times the limit: how much of a body that is too large is read
MAX_ERRORS = 20  # that are named of one body
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Reply(NamedTuple):
    body: bytes
    status: int = 200
    headers: Headers = JSON


class Refused(Exception):
    """An answer instead of the handler's."""

    def __init__(self, status: int, detail: Any, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(status, detail)
        self.status = status
        self.reply = Reply(json.dumps({"detail": detail}).encode(), status, [*JSON, *headers])


class App:
    """`posts` by path, `/health` and `/metrics`."""

    def __init__(
        self,
        name: str,
        posts: Mapping[str, Post],
        health: Callable[[], Reply],
        registry: CollectorRegistry,
        *,
        token: str | None,
        max_body_bytes: int,
    ) -> None:
        """`registry` holds what the service counts itself; one per app: two in a process do not add up."""
        self._token = token.encode() if token is not None else None
        self._max_body_bytes = max_body_bytes
        self._posts = posts
        self._gets: dict[str, Callable[[], Reply]] = {
            "/health": health,
            "/metrics": lambda: Reply(generate_latest(registry), headers=TEXT),
        }
        requests = Counter(f"{name}_requests", "Requests by route and status", ["route", "status"], registry=registry)
        latency = Histogram(f"{name}_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=registry)
        # The library makes texts of the labels each time, which costs as much as all the rest of a count.
        self._requests, self._latency = cache(requests.labels), cache(latency.labels)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        path = scope["path"].rstrip("/")
        route = path if path in self._posts or path in self._gets else "other"  # any path may be asked for
        status = 500
        try:
            try:
                self._check_token(scope)
                body = await self._read(receive)
                if body is None:
                    status = scope.get(REFUSED, CLIENT_GONE)
                    return
                reply = await self._reply(route, scope, body)
            except Refused as refused:
                reply = refused.reply
            status = reply.status
            headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})
        finally:
            self._requests(route, status).inc()
            self._latency(route).observe(time.perf_counter() - started)

    def _check_token(self, scope: Scope) -> None:
        if self._token is None or scope["path"] == "/health":  # a liveness probe has no token
            return
        scheme, _, given = _header(scope, b"authorization").partition(b" ")
        known = hmac.compare_digest(given.strip(), self._token)
        if not known or scheme.lower() != b"bearer":  # RFC 9110: a scheme has no case
            raise Refused(401, "a bearer token is needed", CLOSE, (b"www-authenticate", b"Bearer"))

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body; None where it does not come.

        What is too large is read on and thrown away, to a bound: who still writes would not see the answer.
        """
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= DISCARDED * self._max_body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            size, more = size + len(part), message.get("more_body", False)
            if size <= self._max_body_bytes:
                parts.append(part)
            else:
                parts.clear()
        if size > self._max_body_bytes:
            raise Refused(413, f"the request is larger than {self._max_body_bytes} bytes", CLOSE)
        return b"".join(parts)

    async def _reply(self, route: str, scope: Scope, body: bytes) -> Reply:
        method = scope["method"]
        if route in self._posts:
            if method != "POST":
                raise Refused(405, "Method Not Allowed", (b"allow", b"POST"))
            schema, handler = self._posts[route]
            return Reply(await handler(read(body, _header(scope, b"content-type").decode("latin-1"), schema)))
        if route in self._gets:
            if method not in ("GET", "HEAD"):
                raise Refused(405, "Method Not Allowed", (b"allow", b"GET, HEAD"))
            return self._gets[route]()
        raise Refused(404, "Not Found")


def _header(scope: Scope, wanted: bytes) -> bytes:
    """Its value, or nothing. ASGI servers give names in small letters."""
    return next((value for name, value in scope["headers"] if name == wanted), b"")


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
            raise invalid("missing", (), "Field required")
        return schema.model_validate(content, from_attributes=True)  # bytes where they are not said to be JSON
    except ValidationError as error:
        # Without the request's own text, which may be huge and need not be printable.
        found = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]
        raise Refused(422, [{**one, "loc": ("body", *one["loc"])} for one in found]) from error
    except json.JSONDecodeError as error:
        raise invalid("json_invalid", (error.pos,), "JSON decode error", ctx={"error": error.msg}) from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, "There was an error parsing the body") from error


def check(field: str, found: int, least: int, most: int, *where: str | int) -> None:
    """422 where a number of the request is out of the config's limits."""
    if not least <= found <= most:
        raise invalid("limit", (*where, field), f"found {found}, expected {least} to {most}")


def invalid(kind: str, where: tuple[str | int, ...], message: str, **more: Any) -> Refused:
    return Refused(422, [{"type": kind, "loc": ("body", *where), "msg": message, **more}])


def unavailable(detail: str, after_s: int) -> Refused:
    return Refused(503, detail, (b"retry-after", b"%d" % after_s))
