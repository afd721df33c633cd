"""A world whose tool is a real HTTP server that can be told to die or to hang. Named by dotted path, as users do."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from envs.base import World
from rlsys.types import Task


@dataclass(frozen=True, kw_only=True)
class EchoConfig:
    name: str = "tests.fakes.served.EchoWorld"
    server: str = "echo"
    threads: int | None = 1


class _Handler(BaseHTTPRequestHandler):
    server_version = "echo"
    token = ""
    hung = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/hang":
            self.hung.set()
        elif self.hung.is_set():
            threading.Event().wait(60)
        allowed = self.headers["Authorization"] == f"Bearer {self.token}"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        body = os.environ["OMP_NUM_THREADS"] if self.path == "/threads" else str(os.getpid())
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


class EchoService:
    def __init__(self, host: str, port: int, token: str) -> None:
        _Handler.token = token
        self._server = ThreadingHTTPServer((host, port), _Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class EchoWorld(World):
    def __init__(self, config: EchoConfig) -> None:
        self.service = config.server
        self.service_threads = config.threads

    def tasks(self, split: str) -> Sequence[Task]:
        return []

    def start_service(self, *, host: str, port: int, token: str) -> EchoService:
        if self.service == "broken":
            raise OSError("no such corpus")
        return EchoService(host, port, token)
