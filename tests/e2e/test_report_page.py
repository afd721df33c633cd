"""The page of a report in a real browser: it opens from a file, asks for nothing, and runs nothing that it shows."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from launch.report.page import write_page
from tests.report_example import episodes_of, example_report, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

WATCH = (
    "window.violations = []; document.addEventListener('securitypolicyviolation', e => violations.push(e.blockedURI));"
)


@dataclass
class Opened:
    """A page, and what it did that it may not do."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        violations = self.page.evaluate("window.violations ?? ['lost']")
        pwned = self.page.evaluate("window.pwned ?? null")
        return [*self.console, *self.requests, *violations, *([f"pwned: {pwned}"] if pwned else [])]

    def go(self, link: str) -> None:
        self.page.evaluate("link => { location.hash = link; }", link)

    def wait(self, selector: str) -> Any:
        return self.page.wait_for_selector(selector, timeout=20_000)

    def wait_text(self, selector: str, pattern: str) -> None:
        playwright.expect(self.page.locator(selector)).to_have_text(re.compile(f"^{pattern}$"), timeout=20_000)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root has no sandbox in it
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    contexts = []

    def visit(url: str, **options: Any) -> Opened:
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
        page.goto(url)
        opened.wait("body[data-ready]")
        return opened

    yield visit
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("report"))


def make(folder: Path, names: Sequence[str] = ("made",), text: str = "", **run: Any) -> str:
    runs = [write_run(folder / f"run-{at}", text=text, **run) for at in range(len(names))]
    write_page(example_report(names, text=text), [episodes_of(each) for each in runs], folder / "report.html")
    return (folder / "report.html").as_uri()


def test_it_opens_from_a_file_with_its_charts_drawn(visit: Any, report: str) -> None:
    opened = visit(report)
    assert opened.text(".verdict b") == "It learned."
    assert opened.page.locator(".chart canvas").count() == 6
    assert opened.page.locator(".section .plot").first.bounding_box()["y"] < 760 - 168  # on the first screen, whole
    opened.page.locator("#section-folded summary").click()
    opened.wait("#section-folded canvas")
    assert opened.faults() == []


def test_a_filter_a_group_and_a_trajectory_are_a_click_apart_and_each_is_a_link(visit: Any, report: str) -> None:
    opened = visit(report)
    opened.page.click("nav a[data-view=list]")
    opened.wait("#shelf .row")
    opened.page.fill("#filter", "step=2-3 & correct=1 & sort=-tokens")
    opened.page.press("#filter", "Enter")
    opened.wait("#columns :text('↓')")
    opened.wait_text("#found", r"\d+ of 102")
    tokens = [int(each) for each in opened.texts("#shelf .row .cell:nth-child(8)")]
    assert tokens == sorted(tokens, reverse=True) and 0 < len(tokens) < 24
    assert set(opened.texts("#shelf .row .cell:nth-child(1)")) <= {"2", "3"}
    opened.page.locator("#shelf .row").first.click()
    opened.wait("#episode .card.model")
    kinds = [each.get_attribute("class") for each in opened.page.locator("#episode .card").all()]
    assert kinds == ["card prompt", "card prompt", "card model", "card result", "card model"]
    assert opened.text("#episode .call") == "<calculator>3 * 9</calculator>"
    assert len(opened.text("#episode .finding")) == 7
    opened.page.click("text=all 4 siblings")
    opened.wait("#group .sibling")
    assert opened.page.locator("#group .sibling").count() == 4
    assert opened.page.locator("#group .parts-here").count() == 4
    link, before = opened.page.url, opened.text("#group")
    opened.page.reload()
    opened.wait("#group .sibling")
    assert (opened.page.url, opened.text("#group")) == (link, before)
    assert opened.faults() == []


def test_tokens_take_the_colour_of_what_is_asked_and_make_the_text(visit: Any, report: str) -> None:
    opened = visit(f"{report}#t/step-000003:6.1")
    opened.wait("#episode .card.model")
    said = opened.page.locator("#episode .card.model .text").all_inner_texts()
    for name in ("log-prob", "version", "trained", "advantage"):
        opened.page.click(f"#episode .choice button:text-is('{name}')")
        opened.wait(f"#episode button[aria-pressed=true]:text-is('{name}')")
        drawn = ["".join(each.locator("span").all_inner_texts()) for each in opened.page.locator(".tokens").all()]
        assert [text.replace("·", "") for text in drawn] == [said[0], f"{said[1]}<|end|>"]
        colours = opened.page.evaluate(
            "[...new Set([...document.querySelectorAll('.tokens span')].map(e => e.style.backgroundColor))].length"
        )
        assert colours == {"log-prob": colours, "version": 2}.get(name, 1) and (name != "log-prob" or colours > 20)
    assert opened.faults() == []


def test_keys_lead_through_the_list(visit: Any, report: str) -> None:
    opened = visit(f"{report}#t?step=2&sort=sequence")
    opened.wait("#shelf .row")
    for keys, found in (
        ("j Enter", "step-000002:3.1"),
        ("j", "step-000002:3.2"),
        ("n", "step-000002:4.0"),
        ("k", "step-000002:3.3"),
    ):
        for key in keys.split():
            opened.page.keyboard.press(key)
        opened.wait(f"#episode h2:text-is('{found}')")
    opened.page.keyboard.press("g")
    opened.wait("#group h2:text-is('group step-000002:3')")
    opened.page.keyboard.press("?")
    opened.wait("dialog[open]")
    assert opened.faults() == []


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("q=THE%20SUM%2C%20therefore", None),
        ("tool=calculator", 102),
        ("tool=search", 0),
        ("part.format<0.1", None),
        ("rule=format", None),
    ],
)
def test_words_are_looked_for_in_all_texts(visit: Any, report: str, query: str, count: int | None) -> None:
    opened = visit(f"{report}#t?{query}")
    opened.wait_text("#found", r"\d+ of 102")
    found = int(opened.text("#found").split()[0])
    assert 0 < found < 102 if count is None else found == count
    assert opened.faults() == []


def test_ten_thousand_trajectories_open(visit: Any, tmp_path: Path) -> None:
    url = make(tmp_path, steps=250, groups=5, siblings=8, padding=2000, tasks=40)
    begin = time.perf_counter()
    opened = visit(f"{url}#t")
    opened.wait("#shelf .row")
    seconds = [time.perf_counter() - begin]
    assert opened.text("#found") == "9,998 of 9,998"  # of 10,006, in whole groups of 8
    opened.page.locator("#shelf .row").nth(3).click()
    opened.wait("#episode .card.model")
    seconds.append(time.perf_counter() - begin)
    opened.go("#t?q=9 cards each, therefore")
    opened.wait_text("#found", r"[1-9][\d,]* of 9,998")
    seconds.append(time.perf_counter() - begin)
    print("list, trajectory, search after", [round(each, 2) for each in seconds], "s")
    assert opened.page.evaluate("document.querySelectorAll('*').length") < 2_000
    assert opened.faults() == []
