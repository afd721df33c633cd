"""The search of the built site answers a newcomer, from the disk as over http: the theme's own, in a browser."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Opened
from tests.makers.site import build_site

pytestmark = pytest.mark.e2e

HIT = ".md-search-result__link"  # the best page first; its sections stand below it
# In a newcomer's words, each with the page that answers.
QUESTIONS = {
    "reward is always zero": "debug-a-reward.html",
    "out of memory": "how-to/troubleshooting.html",
    "use my own dataset": "data.html",
    "how do I resume": "run-directory.html",
    "qwen3 without thinking": "models.html",
    "LoRA": "how-to/lora.html",
    "multi node": "cluster.html",
    "wandb": "how-to/watch-a-run.html",
    "verl config": "how-to/from-verl.html",
    "grpo settings": "algorithms.html",
    "custom reward function": "tutorials/own-reward.html",
    "mcp server": "environments/tools.html",
    "search-r1": "how-to/from-search-r1.html",
    "train my openai agent": "tutorials/own-agent.html",
    "llm as a judge": "judge.html",
    "system prompt": "models.html",
    "load the trained model in transformers": "run-directory.html",
    "training hangs": "how-to/incidents.html",
    "evaluate a checkpoint": "evaluation.html",
    "install with cuda": "how-to/install-on-gpus.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def first_hit(opened: Opened, question: str) -> str:
    """The page that the first hit leads to."""
    field = opened.page.locator(".md-search__input")
    for text, hits in (("", "detached"), (question, "attached")):
        field.fill(text)
        field.press("End")  # the theme reads the field when a key is released: one query each
        opened.page.wait_for_selector(HIT, state=hits, timeout=60_000)
    link: str = opened.page.locator(HIT).first.evaluate("link => link.href")
    return link.partition("#")[0]


def test_twenty_questions_lead_to_their_pages_from_the_disk(site: Path, visit: Any) -> None:
    opened = visit((site / "index.html").as_uri(), ready=False)
    hits = {question: first_hit(opened, question) for question in QUESTIONS}
    assert hits == {question: (site / page).as_uri() for question, page in QUESTIONS.items()}
    assert opened.console == [] and [url for url in opened.requests if not url.startswith("file:")] == []


def test_the_search_works_over_http_and_from_a_page_in_a_folder(served: str, visit: Any) -> None:
    opened = visit(f"{served}/how-to/lora.html", ready=False)
    for question in ("how do I resume", "LoRA"):
        assert first_hit(opened, question) == f"{served}/{QUESTIONS[question]}"
    assert opened.console == [] and [url for url in opened.requests if not url.startswith(served)] == []
