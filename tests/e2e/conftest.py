"""A browser for tests of pages: the system's chromium, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import CHROMIUM, WATCH, Opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root has no sandbox in it
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    contexts = []

    def visit(url: str, ready: bool = True, **options: Any) -> Opened:
        contexts.append(browser.new_context(viewport={"width": 1400, "height": 760}, **options))
        page = contexts[-1].new_page()
        page.add_init_script(WATCH)
        opened = Opened(page)
        page.on("console", lambda message: opened.console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: opened.console.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (opened.console.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        plain = url.partition("#")[0]
        page.on(
            "request", lambda request: request.url.partition("#")[0] != plain and opened.requests.append(request.url)
        )
        page.goto(url, wait_until="load" if ready else "commit")
        if ready:
            opened.wait("body[data-ready]")
        return opened

    yield visit
    for context in contexts:
        context.close()
