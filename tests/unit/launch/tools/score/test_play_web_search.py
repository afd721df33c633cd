"""`env.retriever.kind=web`, from the command line to a server that answers as Serper or SerpAPI does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from envs.services.retriever.config import KINDS
from launch.cli import run
from tests.makers.made import jsonl, records

KEY = "k3y-of-a-test"
FOUND = {"title": "Emma", "link": "https://example.org/emma", "snippet": "Written by Jane Austen."}
SAID = "<search>who wrote Emma</search>\\n<answer>Jane Austen</answer>\\n".replace("\\n", "\n")


class Web:
    """What was asked, by method; it answers in both shapes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._say(
                    "POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))), {"organic": [FOUND]}
                )

            def do_GET(self) -> None:
                query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
                self._say("GET", query, {"organic_results": [FOUND]})

            def _say(self, method: str, asked: dict[str, Any], answer: dict[str, Any]) -> None:
                web.asked.append((method, asked, self.headers.get("X-API-KEY")))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/search"


@pytest.fixture
def web() -> Iterator[Web]:
    service = Web()
    thread = threading.Thread(target=service.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield service
    service.server.shutdown()
    service.server.server_close()
    thread.join()


def played(tmp_path: Path, *keys: str) -> tuple[int, list[dict[str, Any]]]:
    data = jsonl(
        tmp_path / "qa.jsonl", [{"question": f"Who wrote Emma, part {n}?", "answer": "Jane Austen"} for n in (1, 2)]
    )
    (tmp_path / "said.txt").write_text(SAID)
    files = ["--answers", str(tmp_path / "said.txt"), "--output", str(tmp_path / "played.jsonl")]
    own = [f"env.data={data}", "env.protocol=icrl", "env.topk=2", "reward.name=icrl"]
    code = run(["play", "worlds/search", *own, *keys, *files])
    output = tmp_path / "played.jsonl"
    return code, records(output) if output.exists() else []


@pytest.mark.parametrize("api", ["serper", "serpapi"])
def test_an_episode_searches_the_web(api: str, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_KEY", KEY)
    keys = ["kind=web", f"web.api={api}", f"web.url={web.url}", "web.key_env=WEB_KEY"]
    code, (episode,) = played(tmp_path, *(f"env.retriever.{key}" for key in keys))
    assert code == 0
    if api == "serper":
        assert web.asked == [("POST", {"q": "who wrote Emma", "num": 2}, KEY)]
    else:
        query = {"engine": "google", "q": "who wrote Emma", "num": "2", "api_key": KEY}
        assert web.asked == [("GET", query, None)]
    (result,) = [message["content"] for message in episode["messages"] if message["role"] == "tool"]
    assert 'Doc 1(Title: "Emma") Written by Jane Austen.' in result
    assert episode["parts"]["accuracy"] > 0 and KEY not in json.dumps(episode)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["kind=web"], "env.retriever.web.key_env=None: expected the variable that holds the key"),
        (["kind=web", "web.key_env=NO_SUCH_KEY"], "env.retriever.web.key_env: the environment variable NO_SUCH_KEY is"),
        (
            ["kind=web", "web.key_env=WEB_KEY", "url=http://127.0.0.1:9"],
            "env.retriever.url='http://127.0.0.1:9': no ef",
        ),
        (["kind=web", "web.key_env=WEB_KEY", "web.url=http://example.org"], "expected an https address, or http on lo"),
        (["kind=wbe"], f"expected one of {', '.join([*KINDS, 'web'])} (did you mean 'web'?)"),
        (["web.key_env=WEB_KEY", "url=http://127.0.0.1:9"], "env.retriever.web.key_env='WEB_KEY': expected null witho"),
    ],
)
def test_what_does_not_fit_is_one_line(
    keys: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEB_KEY", KEY)
    code, episodes = played(tmp_path, *(f"env.retriever.{key}" for key in keys))
    err = capsys.readouterr().err
    assert (code, episodes, err.count("\n")) == (2, [], 1) and said in err and KEY not in err


def test_made_up_questions_are_on_no_web(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["env.retriever.kind=web", "env.retriever.web.key_env=WEB_KEY"]
    assert run(["train", "worlds/search", "--dry-run", *keys]) == 2
    assert "env.retriever.kind='web': expected a retriever of ours" in capsys.readouterr().err
