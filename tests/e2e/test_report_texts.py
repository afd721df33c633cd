"""What others wrote, in the page of a report in a real browser: it is shown, and does nothing."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from launch.tools.report.page import write_page
from rlsys.jsonl import json_line
from tests.browser import Opened
from tests.fakes.hostile_texts import EVERYTHING, HOSTILE
from tests.makers.report_example import episodes_of, example_report, make_page, write_run


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
    """A report page with a hostile text in every name, and with all hostile texts in every longer text."""
    return Path(
        make_page(folder, [HOSTILE[3]], text=EVERYTHING, task_names=HOSTILE, steps=4, groups=groups, siblings=2)[
            len("file://") :
        ]
    )


def test_texts_that_would_run_are_texts(visit: Any, tmp_path: Path) -> None:
    opened = visit(hostile_report(tmp_path).as_uri())
    look_at_everything(opened)
    assert opened.faults() == []
    text = opened.page.evaluate("document.body.textContent")
    assert not set(text) & set("\u202e\u2066\x1b\x07\u200b\ufeff")


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
        assert opened.requests or has_run(page), path.name


def has_run(page: Any) -> bool:
    """Whether a text has run in the page, or has led it elsewhere while it was asked."""
    from playwright.sync_api import Error  # it may be missing: then no page is opened

    try:
        return bool(page.evaluate("window.pwned ?? 0"))
    except Error as error:
        return "navigation" in str(error)


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
        {
            "messages": [{"role": {"toString": 1}, "content": {"valueOf": 2}}, None, "text"],
            "failure": {"kind": {"toString": 1}, "where": {"a": []}, "detail": {"toString": 3}},
            "findings": [{"message": 0, "start": -5, "end": 10**12, "rule": {"toString": 1}, "value": []}] * 5_000,
            "weight_versions": [[[1, -(10**12), 10**12], {"a": 1}]],
            "judgements": [{"toString": 1}],
            "turns": [{"number": {}, "after": {"toString": 1}, "begins": "again"}],
            "state": {"exit": {"toString": 1}, "conversations": 1, "output": [7], "returned": {"toString": 1}},
            "parts": {"p": {"toString": 1}, "__proto__": 7},
        },
    ],
    ids=["long message", "many messages", "many parts", "other shapes", "other numbers", "other kinds"],
)
def test_sizes_and_shapes_are_bounded(visit: Any, tmp_path: Path, line: dict[str, Any]) -> None:
    run = write_run(tmp_path / "run", steps=1)
    begin = {"task": {"task_id": "t"}, "sequence": 900, "sibling": 0, "end": "answered", "truncated": False}
    with (run / "trajectories/step-000001.jsonl").open("ab") as file:
        file.write(json_line(begin | line))
    write_page(example_report(), [episodes_of(run)], tmp_path / "report.html")
    opened = visit(f"{(tmp_path / 'report.html').as_uri()}#t/step-000001:900.0")
    opened.wait("#episode .facts")
    for name in ("log-prob", "text"):
        opened.page.click(f"#episode .choice button:text-is('{name}')")
    assert opened.page.evaluate("document.querySelectorAll('*').length") < 20_000
    assert opened.faults() == []
