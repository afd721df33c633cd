"""A real HTTP endpoint that speaks OpenAI's shape, with scripted answers: right, busy, broken, hanging, dead."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from envs.services.first_question import QUESTION


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # of connections not yet accepted: a full queue costs a second
    daemon_threads = True


class ScriptedEndpoint:
    """`say(prompt)` is the answer: a text, a status, (status, headers, body), or None to hang until the end."""

    def __init__(self, say: Callable[[str], Any], port: int = 0) -> None:
        self.say = say
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.greeted_with: list[dict[str, Any]] = []  # the questions before a run, which are in no other list
        self.greet: Callable[[str], Any] = lambda model: "yes"  # what is said to them
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms for the first

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if request.get("messages") == [{"role": "user", "content": QUESTION.messages[0].content}]:
                    outer.greeted_with.append(request)
                    self._answer(outer.greet(request["model"]))
                    return
                with outer.lock:
                    outer.asked.append(request)
                    outer.keys.append(self.headers["Authorization"])
                    outer.at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer.at_once)
                    answer = outer.say(request["messages"][0]["content"])
                try:
                    self._answer(answer)
                finally:
                    with outer.lock:
                        outer.at_once -= 1

            def _answer(self, answer: Any) -> None:
                if answer is None:
                    outer.over.wait(30)
                    self.close_connection = True
                    return
                status, headers, body = (200, {}, answer) if isinstance(answer, str) else (answer, {}, "no")
                if isinstance(answer, tuple):
                    status, headers, body = answer
                if status == 200 and not headers:
                    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": body}}]})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def greeted(self) -> list[str]:
        """The models of the questions before a run."""
        return [request["model"] for request in self.greeted_with]

    def stop(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


def choice(text: str, finish_reason: str, *calls: tuple[str, str]) -> tuple[int, dict[str, str], str]:
    """A whole answer of the endpoint, for `say`. calls: names and arguments, with ids as OpenAI gives them."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
        message["tool_calls"] = [
            {"id": f"call_{uuid4()}", "type": "function", "function": function} for function in functions
        ]
    body = {"choices": [{"message": message, "finish_reason": finish_reason}]}
    return 200, {"Content-Type": "application/json"}, json.dumps(body)


def five_is_right(prompt: str) -> Any:
    """Unless the answer is too long for it, or leaves it unsure."""
    if "too long" in prompt:
        return (400, {"x": "y"}, "context exceeded")
    return "hm" if "unsure" in prompt else "YES" if "5" in prompt.split("My answer:")[1] else "NO"


@contextmanager
def scripted(say: Callable[[str], Any], port: int = 0) -> Iterator[ScriptedEndpoint]:
    endpoint = ScriptedEndpoint(say, port)
    try:
        yield endpoint
    finally:
        endpoint.stop()
