"""The keeper has done what the SDK does once, so that no agent does it again."""

import asyncio
import subprocess
import sys

import pytest
from openai import AsyncOpenAI, OpenAI

from envs.agents.keeping.module import warm_up
from tests.paths import ROOT

FIRST_REQUEST = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from envs.agents.keeping.module import ANSWER, import_function

class Policy(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

make_client, clients = import_function("openai.OpenAI")
assert clients == []
server = HTTPServer(("127.0.0.1", 0), Policy)
threading.Thread(target=server.serve_forever, daemon=True).start()
before = set(sys.modules)
client = make_client(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="k")
answer = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "2 + 3?"}])
assert answer.choices[0].message.content == ""
sys.exit(str(sorted(set(sys.modules) - before)))
"""


@pytest.mark.parametrize("kind", [OpenAI, AsyncOpenAI])
def test_the_sdk_takes_a_request_before_the_first_episode(
    kind: type[OpenAI | AsyncOpenAI], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    warm_up(kind)  # where the SDK has changed, this raises what the keeper passes over


def test_what_was_asked_before_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread's event loop stays, nothing is logged, and a tracer around the SDK sees no request of ours."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    loop, requests = asyncio.new_event_loop(), []
    caplog.set_level("DEBUG")
    asyncio.set_event_loop(loop)
    try:
        warm_up(AsyncOpenAI)
        assert asyncio.get_event_loop() is loop and not caplog.records
        traced = type(OpenAI().chat.completions)
        monkeypatch.setattr(traced, "create", lambda *_, **__: requests.append("a request"))
        warm_up(OpenAI)
        assert requests == []
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_the_first_request_of_an_agent_imports_nothing() -> None:
    command = [sys.executable, "-c", FIRST_REQUEST]
    errors = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120).stderr
    assert errors.splitlines()[-1] == "[]", errors
