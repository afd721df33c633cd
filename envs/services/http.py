"""The life of an HTTP service: a port, a thread with an event loop of its own, the stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.loops.auto import auto_loop_factory

from rlsys.errors import BadInput, RunFailed


class HttpService:
    """Runs in a thread of this process: `start() -> url`, `stop()`. Single use. The port is taken at once.

    `open_app` is entered in the thread's event loop and left in it after the last request: whatever the app needs lives
    and dies there.
    """

    def __init__(
        self,
        name: str,
        open_app: Callable[[], AbstractAsyncContextManager[ASGIApp]],
        *,
        host: str,
        port: int,
        stop_s: float,
    ) -> None:
        """`stop_s` is how long requests under way may take to end. Raises BadInput for a port that cannot be had."""
        self._name = name
        self._open_app = open_app
        self._stop_s = stop_s
        self._socket = take_port(host, port)
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self, timeout_s: float) -> str:
        """The url, once it answers. Raises what `open_app` raises, and RunFailed when that takes too long."""
        self._thread.start()
        end = time.monotonic() + timeout_s
        while not (self._server is not None and self._server.started):
            if self._failure is not None or not self._thread.is_alive():
                self.stop()
                raise self._failure or RunFailed(f"the {self._name} ended before it answered on {self.url}")
            if time.monotonic() > end:
                self._stopping = True  # it ends itself as soon as it is open
                raise RunFailed(f"the {self._name} did not open {self.url} within {timeout_s:g} s")
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
                app, log_config=None, access_log=False, timeout_graceful_shutdown=int(self._stop_s) + 1
            )
            listen(self._socket)
            server = uvicorn.Server(settings)
            server.should_exit = self._stopping
            self._server = server
            await server.serve(sockets=[self._socket])


class Serving(Protocol):
    """A service that has a thread."""

    def alive(self) -> bool: ...
    def stop(self) -> bool: ...


def serve_until_signal(
    name: str, service: Serving, start: Callable[[], str], started: Callable[[str], None]
) -> NoReturn:
    """Serve until SIGINT or SIGTERM; then answer what is under way and exit with 130 or 143. `start` gives the url."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        started(start())
        gc.collect()
        gc.freeze()  # modules and models stay: looking through them again and again took half of a request's time
        while service.alive():
            time.sleep(0.2)
        raise RunFailed(f"the {name} ended by itself")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # the end is short, and must not be left half-done
            signal.signal(number, signal.SIG_IGN)
        if not service.stop():
            os._exit(1)  # what hangs must not keep the process


def take_port(host: str, port: int) -> socket.socket:
    """A bound socket. Raises BadInput when the port is in use or the host is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))  # it listens once the retriever can answer: until then a probe is refused
    except OSError as error:
        bound.close()
        raise BadInput(f"--port {port} on {host}: {error.strerror or error}; --port 0 takes a free one") from error
    return bound


def listen(bound: socket.socket) -> None:
    """Raises BadInput where another server bound the same port meanwhile: Linux lets two, until one listens."""
    try:
        bound.listen()
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise BadInput(f"--port {port} on {host}: {error.strerror or error}; --port 0 takes a free one") from error


def read_token(name: str | None) -> str | None:
    """The token in the environment variable `name`. Raises BadInput, never with the token's text."""
    if name is None:
        return None
    token = os.environ.get(name, "")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        found = "is not set" if name not in os.environ else "is empty or not plain text"
        raise BadInput(f"--token-env {name}: the environment variable {found}, expected a bearer token")
    return token
