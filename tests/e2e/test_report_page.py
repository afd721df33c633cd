"""The page of a report in a real browser: it opens from a file, asks for nothing, and runs nothing that it shows."""

from __future__ import annotations

import html
import http.client
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from launch.report.live import LiveRuns
from launch.report.page import write_page
from launch.report.server import make_server
from rlsys.jsonl import line_of
from tests.hostile_texts import EVERYTHING, HOSTILE
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


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("report"))


def make(
    folder: Path, names: Sequence[str] = ("made",), text: str = "", task_names: Sequence[str] = (), **run: Any
) -> str:
    runs = [write_run(folder / f"run-{at}", text=text, names=task_names, **run) for at in range(len(names))]
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
    tokens = [int(each) for each in opened.texts("#shelf .row .cell:nth-child(9)")]
    assert tokens == sorted(tokens, reverse=True) and 0 < len(tokens) < 24
    assert set(opened.texts("#shelf .row .cell:nth-child(2)")) <= {"2", "3"}
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
    url = make(tmp_path, steps=250, groups=5, siblings=8, padding=2000, tasks=40, distinct=5)
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


# -- texts of others --


def look_at_everything(opened: Opened) -> None:
    """Each view, each control that a text stands behind, and the pointer over each chart."""
    page = opened.page
    click = "selector => document.querySelectorAll(selector).forEach(each => each.click())"
    page.evaluate(click, "#report summary, #report button")
    for chart in page.locator(".chart .plot:visible").all()[:8]:
        chart.hover(force=True)
    for link in (
        "#t?q=pwned",
        "#t?task=script&sort=-reward",
        "#t?<script>=1",
        "#chart/__proto__",
        "#g/__proto__",
        "#t",
    ):
        opened.go(link)
        page.wait_for_timeout(100)
    opened.wait("#shelf .row")
    for name in page.evaluate("store.names")[::17]:
        opened.go("#t/" + name)
        opened.wait(f"#episode h2:text-is('{name}')")
        page.evaluate(click, "#episode summary, #episode .card button, #episode .choice:first-of-type button")
        opened.go("#g/" + name.rpartition(".")[0])
        opened.wait("#group .sibling")
    page.wait_for_timeout(300)


def hostile_report(folder: Path, groups: int = 12) -> Path:
    """One text in each name that stands alone, all of them in each text that may be long."""
    return Path(
        make(folder, [HOSTILE[3]], text=EVERYTHING, task_names=HOSTILE, steps=4, groups=groups, siblings=2)[
            len("file://") :
        ]
    )


def test_texts_that_would_run_are_texts(visit: Any, tmp_path: Path) -> None:
    opened = visit(hostile_report(tmp_path).as_uri())
    look_at_everything(opened)
    assert opened.faults() == []
    shown = opened.page.evaluate("document.body.textContent")
    assert not set(shown) & set("\u202e\u2066\x1b\x07\u200b\ufeff")


def test_the_last_test_can_fail(visit: Any, tmp_path: Path) -> None:
    """The same page, with texts put as markup: by the template first, then by the scripts."""
    text = hostile_report(tmp_path, groups=1).read_text(encoding="utf-8")
    unbound = re.sub("<meta http-equiv[^>]*>", "", text)
    head, scripts = unbound.split('<script type="text/plain"', 1)
    by_template = tmp_path / "template.html"
    by_template.write_text(html.unescape(head) + '<script type="text/plain"' + scripts)
    by_script = tmp_path / "script.html"
    by_script.write_text(
        unbound.replace("element.append(text.slice(last))", "element.insertAdjacentHTML('beforeend', text)")
    )
    for path in (by_template, by_script):
        opened = visit(path.as_uri(), ready=path is by_script)
        page = opened.page
        page.wait_for_timeout(1000)
        if path is by_script:
            page.evaluate("location.hash = '#t/' + store.names[0]")
            page.wait_for_timeout(1000)
        assert page.evaluate("window.pwned ?? 0") or opened.requests, path.name


@pytest.mark.parametrize(
    "line",
    [
        {"messages": [{"role": "assistant", "content": "x" * 5_000_000}]},
        {"messages": [{"role": "assistant", "content": "turn"}] * 20_000},
        {"parts": {f"part-{number}": 1.0 for number in range(100_000)}, "messages": []},
        {"messages": 7, "prompt": {"a": 1}, "parts": [], "findings": {}, "token_ids": "x", "failure": [], "task": None},
        {
            "messages": [{"role": "assistant", "content": "said"}],
            "token_ids": [[10**9, -1, 2**53]],
            "logprobs": ["!"],
            "weight_versions": [[1]],
        },
    ],
    ids=["long message", "many messages", "many parts", "other shapes", "other numbers"],
)
def test_sizes_and_shapes_are_bounded(visit: Any, tmp_path: Path, line: dict[str, Any]) -> None:
    run = write_run(tmp_path / "run", steps=1)
    begin = {"task": {"task_id": "t"}, "sequence": 900, "sibling": 0, "end": "answered", "truncated": False}
    with (run / "trajectories/step-000001.jsonl").open("ab") as file:
        file.write(line_of(begin | line))
    write_page(example_report(), [episodes_of(run)], tmp_path / "report.html")
    opened = visit(f"{(tmp_path / 'report.html').as_uri()}#t/step-000001:900.0")
    opened.wait("#episode .facts")
    for name in ("log-prob", "text"):
        opened.page.click(f"#episode .choice button:text-is('{name}')")
    assert opened.page.evaluate("document.querySelectorAll('*').length") < 20_000
    assert opened.faults() == []


# -- as the run goes on --

TOKEN = "token-of-this-test"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    run = write_run(tmp_path / "run")

    def report(runs: Sequence[Any], _: object) -> dict[str, Any]:
        return example_report(steps=int(runs[0].rows.step[-1])) | {"title": f"{len(runs[0].rows)} rows"}

    server = make_server(LiveRuns([run], report, 10_000), 0, TOKEN)
    yield run, server.start()
    assert server.stop()


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    found = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return found


def test_the_server_answers_those_with_the_link_alone(served: tuple[Path, str]) -> None:
    _, url = served
    own = url.removeprefix("http://")
    status, headers, _ = ask(url, f"/{TOKEN}/")
    assert status == 200 and headers["cache-control"] == "no-store"
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert ask(url, f"/{TOKEN}/", Origin=f"http://{own}")[0] == 200
    assert ask(url, f"/{TOKEN}/", Host=f"localhost:{own.rpartition(':')[2]}")[0] == 200
    refused: list[tuple[str, dict[str, str]]] = [
        ("/", {}),
        ("/wrong/", {}),
        (f"/{TOKEN}", {}),
        (f"/{TOKEN}x/", {}),
        (f"/{TOKEN}/../../etc/passwd", {}),
        (f"/{TOKEN}/data/../config.yaml", {}),
        (f"/{TOKEN}/%2e%2e/config.yaml", {}),
        (f"/{TOKEN}/config.yaml", {}),
        (f"/{TOKEN}/", {"Host": "evil.example"}),
        (f"/{TOKEN}/", {"Host": f"127.0.0.1.evil.example:{own.rpartition(':')[2]}"}),
        (f"/{TOKEN}/", {"Origin": "http://evil.example"}),
        (f"/{TOKEN}/", {"Origin": "null"}),
        (f"/{TOKEN}/", {"Origin": "http://127.0.0.1:1"}),
    ]
    assert [
        (path, given, ask(url, path, **given)[0]) for path, given in refused if ask(url, path, **given)[0] != 403
    ] == []
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(url, f"/{TOKEN}/", method)[0] == 403
    assert ask(url, f"/{TOKEN}/data/0000/index")[0] == 410


def test_the_page_follows_a_run_and_what_a_resume_drops_is_gone(visit: Any, served: tuple[Path, str]) -> None:
    run, url = served
    opened = visit(f"{url}/{TOKEN}/#t")
    opened.requests.clear()  # of its own server: checked below
    opened.page.on(
        "request", lambda request: request.url.startswith(f"{url}/{TOKEN}/") or opened.requests.append(request.url)
    )
    opened.wait_text("#found", "102 of 102")
    opened.page.locator("#shelf .row").first.click()
    opened.wait("#episode .card.model")
    opened.go("#t")
    (run / "trajectories/step-000008.jsonl").unlink()
    rows = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(rows[:7]))
    opened.wait_text("#found", "90 of 90")
    opened.wait_text("h1", "7 rows")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(rows[7] + b'{"step": 9, "sta')
    opened.wait_text("h1", "8 rows")
    assert [each for each in opened.requests if not each.startswith(f"{url}/{TOKEN}/")] == []
    assert opened.console == [] and opened.page.evaluate("violations") == []
