"""What every request passes before a handler sees it: the token, the size limit, a deadline for its body."""

from __future__ import annotations

import hmac
import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envs.services.deadlines import Deadlines

Headers = list[tuple[bytes, bytes]]

CLOSE = (b"connection", b"close")
OPEN_PATHS = ("/health",)  # a liveness probe has no token
DISCARDED = 16  # times the limit: how much of a body that is too large is read


class Refused(Exception):
    """An answer instead of the handler's."""

    def __init__(self, status: int, detail: Any, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(status, detail)
        self.status = status
        self.body = json.dumps({"detail": detail}).encode()
        self.headers: Headers = [(b"content-type", b"application/json"), *headers]


class Admission:
    """Reads a request's body. Lives in one event loop."""

    def __init__(self, *, token: str | None, max_body_bytes: int, deadline_s: float) -> None:
        self._authorization = f"Bearer {token}".encode() if token is not None else None
        self._max_body_bytes = max_body_bytes
        self._deadline_s = deadline_s
        self._deadlines = Deadlines(deadline_s)

    async def body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None where the client went away. Raises Refused: 401, 408 or 413."""
        if self._authorization is not None and scope["path"] not in OPEN_PATHS:
            headers = {name.lower(): value for name, value in scope["headers"]}
            if not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
                raise Refused(401, "a bearer token is needed", CLOSE, (b"www-authenticate", b"Bearer"))
        try:
            with self._deadlines.begin():
                return await self._read(receive)
        except TimeoutError:
            raise Refused(408, f"the request did not arrive within {self._deadline_s:g} s", CLOSE) from None

    async def _read(self, receive: Receive) -> bytes | None:
        """What is too large is read on and thrown away, to a bound: who still writes would not see the answer."""
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


class Gate:
    """ASGI middleware: an admission before an app."""

    def __init__(self, app: ASGIApp, *, token: str | None, max_body_bytes: int, deadline_s: float) -> None:
        self._app = app
        self._admission = Admission(token=token, max_body_bytes=max_body_bytes, deadline_s=deadline_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._admission.body(scope, receive)
        except Refused as refused:
            await answer(send, refused.status, refused.headers, refused.body)
            return
        if body is None:
            return

        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


async def answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """One whole answer."""
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
