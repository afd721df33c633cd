"""What every service holds its connections and requests to, on real sockets."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.responses import Response

import envs.services.limits
from envs.services.app import HttpRefusal, Post, make_app
from envs.services.http import HttpService
from envs.services.limits import MAX_HEAD_BYTES, MAX_HEADERS, most_connections

MOST = 1 << 20  # bytes of a body
HALF_A_PAIR = "\ud800"
HEAD = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


class Echo(BaseModel):
    text: str


@contextmanager
def serving(arrive_s: float, token: str | None = None) -> Iterator[int]:
    """The port of an app that sends back what it is sent."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Starlette]:
        async def echo(asked: Echo) -> bytes:
            if asked.text == HALF_A_PAIR:
                raise HttpRefusal(400, asked.text)
            return json.dumps(asked.text).encode()

        posts: dict[str, Post] = {"/echo": (Echo, echo)}
        yield make_app("echo", posts, Response, CollectorRegistry(), token=token, max_body_bytes=MOST)

    limits: dict[str, Any] = {"arrive_s": arrive_s, "max_body_bytes": MOST, "stop_s": 1.0}
    service = HttpService("echo", opened, host="127.0.0.1", port=0, **limits)
    try:
        yield int(service.start().rpartition(":")[2])
    finally:
        assert service.stop()


def answered(port: int, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """All that the server says until it closes the connection, where each part is sent after a pause."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        reply = b""
        with suppress(ConnectionError):  # it is gone before all was sent; what it said lies here
            for part in parts:
                time.sleep(pause_s)
                connection.sendall(part)
        with suppress(ConnectionError):
            while chunk := connection.recv(1 << 16):
                reply += chunk
        return reply


HALF = {
    "nothing": b"",
    "a line": b"POST /echo HT",
    "a head": HEAD,
    "no body": HEAD + b"content-length: 9\r\n\r\n",
    "a second head": HEAD + b'content-length: 15\r\n\r\n{"text": "a"}\n\n' + HEAD,
}


def test_a_request_that_does_not_arrive_whole_is_408() -> None:
    def ask(half: bytes) -> tuple[bytes, float]:
        started = time.monotonic()
        return answered(port, half), time.monotonic() - started

    with serving(0.2) as port, ThreadPoolExecutor(len(HALF)) as clients:
        replies = dict(zip(HALF, clients.map(ask, HALF.values()), strict=True))
    for name, (reply, seconds) in replies.items():
        assert reply.count(b"HTTP/1.1 408 Request Timeout\r\n") == 1, name
        assert reply.endswith(b'{"detail": "the request did not arrive within 0.2 s"}'), name
        assert 0.2 <= seconds < 5, name


@pytest.mark.parametrize(
    "half",
    [
        b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n",
        HEAD + b"content-length: %d\r\n\r\n" % (3 * MOST) + b"x" * 2 * MOST,  # longer than it may be
    ],
)
def test_nothing_is_answered_before_the_request_is_whole_and_then_once(half: bytes) -> None:
    """uvicorn never closes a connection whose request goes on behind its answer."""
    with serving(0.2) as port:
        reply = answered(port, half)
    assert reply.count(b"HTTP/1.1 ") == 1 and reply.startswith(b"HTTP/1.1 408 ")


def test_a_byte_at_a_time_is_late_too() -> None:
    with serving(0.2) as port:
        started = time.monotonic()
        reply = answered(port, HEAD + b"x: ", *[b"x"] * 1000, pause_s=0.01)
        assert reply.startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - started < 9


@pytest.mark.parametrize("start", [b"POST /", HEAD + b"x: ", HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: "])
def test_a_head_without_an_end_is_431(start: bytes) -> None:
    with serving(30.0) as port:
        reply = answered(port, start, *[b"x" * 1024] * (MAX_HEAD_BYTES // 1024), b"x")
        assert reply.startswith(b"HTTP/1.1 431 ")


def test_headers_without_end_are_431_however_small() -> None:
    with serving(30.0) as port:
        few = b"connection: close\r\ncontent-length: 0\r\n" + b"a:\r\n" * (MAX_HEADERS - 4)
        most = answered(port, HEAD + few + b"\r\n")
        assert b"HTTP/1.1 422 " in most
        reply = answered(port, HEAD, *[b"a:\r\n" * 64] * 4)
        assert reply.startswith(b"HTTP/1.1 431 ") and b"more than 128 headers" in reply


def test_the_scheme_of_a_token_has_no_case_and_the_token_has() -> None:
    rest = b'\r\nconnection: close\r\ncontent-length: 13\r\n\r\n{"text": "a"}'
    right = (b"Bearer t0ken", b"bearer t0ken", b"BEARER t0ken", b"Bearer   t0ken")
    wrong = (b"Bearer T0KEN", b"Bearer t0ken2", b"Basic t0ken", b"t0ken", b"Bearer", b"Bearer \xff", b"")
    with serving(30.0, "t0ken") as port:
        for status, headers in ((200, right), (401, wrong)):
            for header in headers:
                reply = answered(port, HEAD + b"authorization: " + header + rest)
                assert reply.startswith(b"HTTP/1.1 %d " % status), header


def test_who_holds_connections_and_says_nothing_makes_room_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs.services.limits, "MAX_CONNECTIONS", 3)
    with serving(30.0) as port:
        connections: list[socket.socket] = []
        for asking in range(5):
            connections.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            connections[-1].sendall(HEAD)
            time.sleep(0.05)  # until it is taken, and before the next
            if asking >= 2:
                reply = answered(port, b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")
                assert reply.startswith(b"HTTP/1.1 200 ")
                assert connections[asking - 2].recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("soft", "hard", "room"), [(256, 256, (100, 192)), (256, 10_000, (4096, 4096)), (20, 20, (1, 1))]
)
def test_connections_are_no_more_than_there_are_descriptors(
    soft: int, hard: int, room: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as many as the system gives are taken."""
    bounds = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: bounds[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: bounds.append(limits))
    assert room[0] <= most_connections() <= room[1]


def test_a_refusal_repeats_what_is_no_unicode() -> None:
    with serving(30.0) as port:
        body = json.dumps({"text": HALF_A_PAIR}).encode()
        reply = answered(port, HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert reply.startswith(b"HTTP/1.1 400 ") and reply.endswith(b'{"detail": "\\ud800"}')


def test_a_body_is_not_taken_for_a_head() -> None:
    with serving(30.0) as port:
        body = json.dumps({"text": "x" * (4 * MAX_HEAD_BYTES)}).encode()
        request = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        reply = answered(port, request)
        assert reply.startswith(b"HTTP/1.1 200 ") and len(reply) > 4 * MAX_HEAD_BYTES


def test_one_connection_too_many_is_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs.services.limits, "MAX_CONNECTIONS", 2)
    with serving(30.0) as port:
        assert answered(port, b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        connections = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2)]
        for connection in connections:  # both are taken once they are answered
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        refused = answered(port)
        assert refused.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in refused
        for connection in connections:
            connection.close()
