"""The life of an HTTP service: a port, a thread with its own event loop, the stop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, NoReturn, cast

import uvicorn
from uvicorn.loops.auto import auto_loop_factory

from envs.services.limits import Limits
from rlsys.errors import BadInput, RunFailed


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
        max_body_bytes: int,
        stop_s: float,
        start_s: float = 30.0,
    ) -> None:
        """A request has `arrive_s` to arrive whole; those under way have `stop_s` to end at the stop. `start_s` is for
        the app to open. The app refuses a body above `max_body_bytes`.

        Raises BadInput for a port that cannot be had.
        """
        self.name = name
        self._open_app = open_app
        self._arrive_s = arrive_s
        self._max_body_bytes = max_body_bytes
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
            limits = Limits(self._arrive_s, self._max_body_bytes)  # once the app has opened its files
            settings = uvicorn.Config(
                app,
                http=cast(Any, limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(self._stop_s) + 1,
            )
            with _port_errors(*self._socket.getsockname()[:2]):  # Linux lets two servers bind a port, until one listens
                self._socket.listen()
            server = uvicorn.Server(settings)
            server.should_exit = self._stopping
            self._server = server
            watching = asyncio.create_task(limits.watch())
            try:
                await server.serve(sockets=[self._socket])
            finally:
                watching.cancel()


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
        raise BadInput(
            f"{error.strerror or error} on {host}; --port 0 takes a free one", key="--port", found=port
        ) from error
