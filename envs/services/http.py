"""The life of an HTTP service: a port, a thread with an event loop of its own, the stop.

What every connection is held to is said here, once for all services: `MAX_CONNECTIONS`, `MAX_HEAD_BYTES`, `MAX_HEADERS`
and, from the service's configuration, `arrive_s`. All of it counts before anybody has shown a token.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn, cast

import uvicorn
from uvicorn.loops.auto import auto_loop_factory
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from envs.services.app import REFUSED
from rlsys.errors import BadInput, RunFailed

MAX_CONNECTIONS = 4096  # or fewer, where the system gives fewer descriptors
SPARE_DESCRIPTORS = 64  # for files, and for what a service itself asks
MAX_HEADERS = 128
MAX_HEAD_BYTES = 1 << 16  # of whatever of a request is not its body: headers, marks between chunks, trailers
WATCH_S = 1.0  # at most so often are connections looked at


class HttpService:
    """Runs in a thread of this process: `start() -> url`, `stop()`. Single use. The port is taken at once.

    `open_app` is entered in the thread's event loop and left in it after the last request: whatever the app needs lives
    and dies there.
    """

    def __init__(
        self,
        name: str,
        open_app: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        host: str,
        port: int,
        arrive_s: float,
        stop_s: float,
        start_s: float = 30.0,
    ) -> None:
        """A request has `arrive_s` to arrive whole; those under way have `stop_s` to end at the stop. `start_s` is for
        the app to open.

        Raises BadInput for a port that cannot be had.
        """
        self.name = name
        self._open_app = open_app
        self._arrive_s = arrive_s
        self._stop_s = stop_s
        self._start_s = start_s
        self._socket = take_port(host, port)
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> str:
        """The url, once it answers. Raises what `open_app` raises, and RunFailed when that takes too long."""
        self._thread.start()
        end = time.monotonic() + self._start_s
        while not (self._server is not None and self._server.started):
            if self._failure is not None or not self._thread.is_alive():
                self.stop()
                raise self._failure or RunFailed(f"the {self.name} ended before it answered on {self.url}")
            if time.monotonic() > end:
                self._stopping = True  # it ends itself as soon as it is open
                raise RunFailed(f"the {self.name} did not open {self.url} within {self._start_s:g} s")
            time.sleep(0.01)
        return self.url

    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> bool:
        """Answer what is under way, end the thread. False when it hangs and cannot be ended."""
        self._stopping = True
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(2 * self._stop_s + 10.0)
        self._socket.close()
        return not self.alive()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:  # uvloop, where it is installed
                runner.run(self._serve())
        except BaseException as error:  # handed to `start`, in its own thread
            self._failure = error

    async def _serve(self) -> None:
        async with self._open_app() as app:
            settings = uvicorn.Config(
                app,
                http=cast(Any, partial(Connection, self._arrive_s, most_connections())),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=int(self._stop_s) + 1,
            )
            with _port_errors(*self._socket.getsockname()[:2]):  # Linux lets two servers bind a port, until one listens
                self._socket.listen()
            server = uvicorn.Server(settings)
            server.should_exit = self._stopping
            self._server = server
            watching = asyncio.create_task(self._watch(server))
            try:
                await server.serve(sockets=[self._socket])
            finally:
                watching.cancel()

    async def _watch(self, server: uvicorn.Server) -> None:
        """One timer for all connections: one for each request would cost a twentieth of the retriever's answers."""
        while True:
            await asyncio.sleep(min(WATCH_S, self._arrive_s / 4))
            for connection in list(server.server_state.connections):
                cast(Connection, connection).look()


class Connection(HttpToolsProtocol):
    """uvicorn's, which by itself waits for the end of a request for ever and keeps a head of any length."""

    def __init__(self, arrive_s: float, most: int, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._arrive_s = arrive_s
        self._most = most
        self._head_bytes = 0  # of the request that is arriving, or since the last one
        self._since: float | None = None  # it is arriving, on the loop's clock; None while none is

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """The one whose request has been on its way for longest goes; this one, where none is on its way.

        So whoever asks at once is served, however many hold a connection and say nothing.
        """
        arriving = [each for each in cast(set[Connection], self.connections) if each._is_arriving()]
        goes = min(arriving, key=lambda each: each._since or 0.0)
        goes._refuse(503, f"no more than {self._most} connections may be open", "retry-after: 1\r\n")

    def _is_arriving(self) -> bool:
        return self._since is not None and not self.pipeline and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self._since is None:
            self._since = self.loop.time()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._since is None:  # behind the end of another one
            self._since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) < MAX_HEADERS:
            super().on_header(name, value)
        else:
            self._refuse(431, f"the request has more than {MAX_HEADERS} headers")

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._head_bytes -= len(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._since, self._head_bytes = None, 0

    def look(self) -> None:
        """End a request that has taken too long to arrive. One behind another in a pipeline is not read meanwhile."""
        if self._is_arriving() and self.loop.time() - cast(float, self._since) > self._arrive_s:
            self._refuse(408, f"the request did not arrive within {self._arrive_s:g} s")

    def _refuse(self, status: int, detail: str, headers: str = "") -> None:
        """What waits for the body is told that the client is gone."""
        if self.transport.is_closing():
            return
        if self.scope is not None:
            cast(dict[str, Any], self.scope)[REFUSED] = status
        body = json.dumps({"detail": detail})
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n{headers}"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
        self.transport.close()


def serve_until_signal(service: HttpService, started: Callable[[str], None]) -> NoReturn:
    """Start, tell `started` the url, serve until SIGINT or SIGTERM.

    Then answer what is under way and exit with 130 or 143.
    """

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        started(service.start())
        gc.collect()
        gc.freeze()  # modules and models stay: looking through them again and again took half of a request's time
        while service.alive():
            time.sleep(0.2)
        raise RunFailed(f"the {service.name} ended by itself")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # the end is short, and must not be left half-done
            signal.signal(number, signal.SIG_IGN)
        if not service.stop():
            os._exit(1)  # what hangs must not keep the process


def most_connections() -> int:
    """As many as there are descriptors for, at most MAX_CONNECTIONS: without one to accept with, nobody is answered.

    The process takes as many descriptors as it may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + SPARE_DESCRIPTORS
    if soft < needed + MAX_CONNECTIONS and soft < hard:
        soft = min(hard, needed + MAX_CONNECTIONS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(MAX_CONNECTIONS, soft - needed))


def take_port(host: str, port: int) -> socket.socket:
    """A bound socket. Raises BadInput when the port is in use or the host is not this machine's."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        with _port_errors(host, port):
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))  # it listens once the retriever can answer: until then a probe is refused
    except BadInput:
        bound.close()
        raise
    return bound


@contextmanager
def _port_errors(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"--port {port} on {host}: {error.strerror or error}; --port 0 takes a free one") from error
