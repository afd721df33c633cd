"""Both services under clients that mean no good and have no token: bounded memory, and who has one is served."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.fakes.judge_endpoint import scripted

TOKEN = "t0ken-of-a-test"
HALF = b"POST /retrieve HTTP/1.1\r\nhost: x\r\nauthorization: Bea"
FLOODERS, FLOOD_S, FLOOD_BYTES = 8, 2.0, 1 << 28
HELD = 300  # connections with half a head
GROWTH_MB = 32


@contextmanager
def serving(*arguments: str, descriptors: int) -> Iterator[tuple[int, psutil.Process]]:
    """`rlsys serve` with a token, in a process that may have so many descriptors: its port and itself."""
    command = [sys.executable, "-m", "launch", "serve", *arguments, "--port", "0", "--token-env", "FLOOD_TOKEN"]
    process = subprocess.Popen(
        [*command, "--arrive", "2"],
        env=os.environ | {"FLOOD_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)),
    )
    try:
        assert process.stdout is not None
        matches = filter(None, (re.search(r" on http://127\.0\.0\.1:(\d+)", line) for line in process.stdout))
        yield int(next(matches)[1]), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def asking(port: int, path: str, body: dict[str, Any]) -> Iterator[list[int | str]]:
    """Somebody with the token, who asks again and again, each time on a new connection: the answers."""
    answers: list[int | str] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                answers.append(
                    requests.post(
                        f"http://127.0.0.1:{port}{path}",
                        json=body,
                        headers={"Authorization": f"Bearer {TOKEN}"},
                        timeout=30,
                    ).status_code
                )
            except requests.RequestException as error:
                answers.append(type(error).__name__)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        thread.join()


def flood(port: int, piece: bytes) -> None:
    """Heads without an end, from a few connections that come again when they are closed."""
    remaining = [FLOOD_BYTES]
    end = time.monotonic() + FLOOD_S

    def pour() -> None:
        while time.monotonic() < end and remaining[0] > 0:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                try:
                    connection.sendall(b"POST / HTTP/1.1\r\nx: ")
                    while time.monotonic() < end and remaining[0] > 0:
                        connection.sendall(piece)
                        remaining[0] -= len(piece)
                except OSError:  # closed at last
                    continue

    threads = [threading.Thread(target=pour) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hold(port: int, stack: ExitStack) -> list[socket.socket]:
    connections = []
    for _ in range(HELD):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        connection.sendall(HALF)
        connections.append(connection)
    return connections


def closed_with(connection: socket.socket) -> str:
    """The status that the server ended it with; waits until it does."""
    response = b""
    try:
        while piece := connection.recv(4096):
            response += piece
    except ConnectionResetError:
        pass
    return response[9:12].decode()


@pytest.fixture
def retriever(tmp_path: Path) -> tuple[list[str], str, dict[str, Any]]:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": str(n), "contents": f"Title\nword{n}"}) + "\n" for n in range(100)))
    return ["retriever", "--corpus", str(corpus)], "/retrieve", {"queries": ["word7"]}


@pytest.fixture
def judge() -> Iterator[tuple[list[str], str, dict[str, Any]]]:
    with scripted(lambda _: "YES") as endpoint:
        fields = {"question": "2 + 3?", "answers": "5", "answer": "5.0"}
        question = {"kind": "outcome_math", "fields": fields}
        yield ["judge", "--endpoint", endpoint.url, "--model", "scripted"], "/judge", question


@pytest.mark.parametrize(("service", "descriptors"), [("retriever", 256), ("judge", 4096)])
def test_a_flood_without_a_token_costs_bounded_memory_and_no_answer(
    service: str, descriptors: int, request: pytest.FixtureRequest
) -> None:
    arguments, path, body = request.getfixturevalue(service)
    with serving(*arguments, descriptors=descriptors) as (port, process), asking(port, path, body) as answers:
        while len(answers) < 20:  # caches and pools are as large as they get
            time.sleep(0.01)
        before = process.memory_info().rss
        for piece in (b"x" * 65536, b"\r\na:" * 16384):
            flood(port, piece)
        with ExitStack() as stack:
            connections, num_answers = hold(port, stack), len(answers)
            while len(answers) < num_answers + 5:  # they are served while the others are held
                time.sleep(0.01)
            ended = [closed_with(connection) for connection in connections]
        # With few descriptors who came first makes room; with enough of them everybody has the time that there is.
        assert set(ended) == ({"408", "503"} if descriptors < HELD else {"408"})
        grown = process.memory_info().rss - before
        assert grown < GROWTH_MB * 2**20, f"{grown / 2**20:.0f} MiB"
    assert set(answers) == {200}
