"""What every request passes before a handler sees it: the token, the size limit, a deadline for its body."""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = ("/health",)  # a liveness probe has no token
DISCARDED = 16  # times the limit: how much of a body that is too large is read


class TooLarge(Exception):
    pass


class Gate:
    """ASGI middleware. Answers 401, 408 and 413 itself."""

    def __init__(self, app: ASGIApp, *, token: str | None, max_body_bytes: int, deadline_s: float) -> None:
        self._app = app
        self._authorization = f"Bearer {token}".encode() if token is not None else None
        self._max_body_bytes = max_body_bytes
        self._deadline_s = deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._authorization is not None and scope["path"] not in OPEN_PATHS:
            if not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
                await refuse(send, 401, "a bearer token is needed", {b"www-authenticate": b"Bearer"})
                return
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await self._body(receive)
        except TooLarge:
            await refuse(send, 413, f"the request is larger than {self._max_body_bytes} bytes")
            return
        except TimeoutError:
            await refuse(send, 408, f"the request did not arrive within {self._deadline_s:g} s")
            return
        if body is None:
            return  # the client went away

        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None where the client went away.

        What is too large is read on and thrown away, to a bound: a client that still writes would not see the answer.
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
            raise TooLarge
        return b"".join(parts)


async def refuse(send: Send, status: int, detail: str, headers: dict[bytes, bytes] | None = None) -> None:
    content: dict[str, Any] = {"detail": detail}
    names = {b"content-type": b"application/json", b"connection": b"close"} | (headers or {})
    await send({"type": "http.response.start", "status": status, "headers": list(names.items())})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})
