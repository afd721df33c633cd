"""What `rlsys submit` finds out from the cluster before it uploads anything: a server with the answers of Ray's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import ray

from launch.cli import run as rlsys

pytestmark = pytest.mark.e2e

VERSION = {"ray_version": ray.__version__, "version": "4", "ray_commit": "", "session_name": ""}


def nodes(*addresses: str) -> dict[str, Any]:
    alive_nodes = [{"node_id": str(number), "node_ip": ip, "state": "ALIVE"} for number, ip in enumerate(addresses)]
    return {"result": True, "data": {"result": {"result": alive_nodes}}}


@contextmanager
def dashboard(answers: dict[str, tuple[int, Any]]) -> Iterator[tuple[str, list[str]]]:
    """(address, what was asked of it). answers: by path without its query."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.command} {self.path}")
            code, body = answers.get(self.path.partition("?")[0], (404, "no such path"))
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ADDRESS", "10.255.255.1:6379")  # that Ray's client would take instead
    (tmp_path / "own.yaml").write_text("extends: quickstart\n")


REFUSALS = {
    "foreign Ray": ({"/api/version": (200, VERSION | {"ray_version": "2.9.0"})}, "Ray 2.9.0"),
    "no token": ({"/api/version": (401, "Unauthorized: Missing authentication token")}, "RAY_AUTH_MODE=token"),
    "one machine": (
        {"/api/version": (200, VERSION), "/api/v0/nodes": (200, nodes("10.0.0.1", "10.0.0.2", "10.0.0.1"))},
        "--no-upload",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_it_is_refused_before_anything_is_sent(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers, text = REFUSALS[name]
    with dashboard(answers) as (address, requests):
        code = rlsys(["submit", "own.yaml", "--address", address, "--run-dir", "/shared/r"])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2 and text in line
    assert requests and not any(request.startswith(("PUT", "POST")) for request in requests)


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard({}) as (address, _):
        pass
    assert rlsys(["submit", "own.yaml", "--address", address, "--run-dir", "/shared/r"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--address {address}" in line and "Connection refused" in line


def test_an_unknown_job_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"/api/version": (200, VERSION), "/api/jobs/x": (404, "Job x does not exist")}
    with dashboard(missing) as (address, _):
        assert rlsys(["submit", "--address", address, "--attach", "x"]) == 2
        assert rlsys(["submit", "--address", address, "--stop", "x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("no such job" in line for line in lines)
