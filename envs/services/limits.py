"""What the connections of an HTTP service may cost before a token has been shown: number, time, headers, bytes.

uvicorn bounds none of these; hypercorn and granian bound the head, but not the time of a body, and let those who hold
connections keep the others out (docs/results/retriever.md). So a protocol stands between the socket and uvicorn's, and
parses the client's bytes itself with `httptools`. It calls only those methods of uvicorn's protocol that asyncio calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_CONNECTIONS = 4096  # or fewer, where the system gives fewer descriptors
SPARE_DESCRIPTORS = 64  # for files, and for what a service itself asks
MAX_HEADERS = 128
MAX_HEAD_BYTES = 1 << 16  # of whatever of a request is not its body: headers, marks between chunks, trailers
DISCARDED = 16  # times the limit: how much of a body that the service refused is read, so that its client sees why
WATCH_S = 1.0  # at most so often are connections looked at


class Limits:
    """Of all connections of one server. An instance is what uvicorn makes a connection's protocol with."""

    def __init__(self, arrive_s: float, max_body_bytes: int) -> None:
        """A request has `arrive_s` to arrive whole. The service itself refuses a body above `max_body_bytes`."""
        self.arrive_s = arrive_s
        self.most_read = DISCARDED * max_body_bytes
        self.max_connections = most_connections()
        self.connections: set[LimitedConnection] = set()

    def __call__(self, **options: Any) -> LimitedConnection:
        return LimitedConnection(self, cast(Any, AutoHTTPProtocol)(**options))

    async def watch(self) -> None:
        """One timer for all connections: one for each request would cost a twentieth of the retriever's answers."""
        while True:
            await asyncio.sleep(min(WATCH_S, self.arrive_s / 4))
            for connection in list(self.connections):
                connection.refuse_if_late()

    def make_room(self, newest: LimitedConnection) -> None:
        """The request that has been arriving for longest goes; `newest`, where no other is arriving.

        So a client that asks at once is served, however many hold a connection and say nothing.
        """
        if len(self.connections) > self.max_connections:
            arriving = filter(LimitedConnection.is_arriving, self.connections)
            slowest = min(arriving, key=lambda connection: connection.since or 0.0, default=newest)
            slowest.refuse(503, f"no more than {self.max_connections} connections may be open", "retry-after: 1\r\n")


class LimitedConnection(asyncio.Protocol):
    """Passes on what it receives, until its client goes beyond a limit."""

    def __init__(self, limits: Limits, server: asyncio.Protocol) -> None:
        self.since: float | None = None  # a request is arriving, on the loop's clock; None while none is
        self._limits = limits
        self._server = server
        self._clock = asyncio.get_running_loop().time
        self._parser = httptools.HttpRequestParser(self)
        self._head_bytes = self._body_bytes = self._headers = 0  # of the request that is arriving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.since = self._clock()
        self._server.connection_made(transport)
        self._limits.connections.add(self)
        self._limits.make_room(self)

    def data_received(self, data: bytes) -> None:
        if self.since is None:
            self.since = self._clock()
        self._head_bytes += len(data)
        with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):  # the server answers; the rest is a head
            self._parser.feed_data(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.refuse(431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes")
        if not self._transport.is_closing():
            self._server.data_received(data)

    def eof_received(self) -> bool | None:
        return self._server.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._limits.connections.discard(self)
        self._server.connection_lost(error)

    def pause_writing(self) -> None:
        self._server.pause_writing()

    def resume_writing(self) -> None:
        self._server.resume_writing()

    def on_message_begin(self) -> None:
        if self.since is None:  # behind the end of another one
            self.since = self._clock()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > MAX_HEADERS:
            self.refuse(431, f"the request has more than {MAX_HEADERS} headers")

    def on_body(self, body: bytes) -> None:
        self._head_bytes -= len(body)
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.most_read:
            self._transport.close()

    def on_message_complete(self) -> None:
        self.since = None
        self._head_bytes = self._body_bytes = self._headers = 0

    def is_arriving(self) -> bool:
        """Not while the server itself reads nothing, since an earlier request on this connection is not answered."""
        return self.since is not None and self._transport.is_reading() and not self._transport.is_closing()

    def refuse_if_late(self) -> None:
        if not self._transport.is_reading() and self.since is not None:
            self.since = self._clock()
        elif self.is_arriving() and self._clock() - cast(float, self.since) > self._limits.arrive_s:
            self.refuse(408, f"the request did not arrive within {self._limits.arrive_s:g} s")

    def refuse(self, status: int, detail: str, headers: str = "") -> None:
        """Answer in the server's place. What waits for the body finds that the client is gone."""
        if self._transport.is_closing():
            return
        body = json.dumps({"detail": detail})
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n{headers}"
        self._transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        self._transport.close()


def most_connections() -> int:
    """As many as there are descriptors for, at most MAX_CONNECTIONS: without a free one no client can be accepted.

    The process takes as many descriptors as it may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = len(os.listdir("/proc/self/fd")) + SPARE_DESCRIPTORS
    if soft < reserved + MAX_CONNECTIONS and soft < hard:
        soft = min(hard, reserved + MAX_CONNECTIONS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(MAX_CONNECTIONS, soft - reserved))
