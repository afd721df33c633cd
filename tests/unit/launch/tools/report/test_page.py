"""The file of a report: what may run in it, and what its texts become."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from launch.tools.report import page
from launch.tools.report.page import STATIC, content_security_policy, write_page
from tests.makers.report_example import episodes_of, example_report, write_run

HOSTILE = "<script>pwned=1</script>\"' onerror=x \u202e\x1b[31m {{ 7*7 }} ]]> --> </title></style>"
UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\bFunction\(|setAttribute\(['\"]on|javascript:"
)


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and data.strip():
            self.scripts.append(data)


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    return parser


def make(folder: Path, text: str = "") -> str:
    write_page(example_report(text=text), [episodes_of(write_run(folder / "run", text=text))], folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_uplot_is_the_file_that_its_makers_published() -> None:
    assert hashlib.sha256((STATIC / "uPlot.iife.min.js").read_bytes()).hexdigest() == UPLOT
    assert "MIT License" in (STATIC / "uPlot.LICENSE").read_text()


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_no_source_makes_markup_or_code_of_a_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert FORBIDDEN.findall(text) == []
    assert len(text.splitlines()) <= 400
    if path.suffix == ".html":
        assert not re.search(r"\|\s*safe|autoescape|\sstyle=|\son\w+=", text)


def test_no_python_marks_a_text_as_safe() -> None:
    for path in STATIC.parent.glob("*.py"):
        assert not re.search(r"\bMarkup\b|\|\s*safe", path.read_text()), path.name


def test_the_policy_names_each_script_and_style_of_the_page_and_nothing_else(tmp_path: Path) -> None:
    text = make(tmp_path)
    blocks = re.findall(r"<(script|style)>(.*?)</\1>", text, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for _, block in blocks}
    assert digests == set(re.findall(r"'sha256-([^']+)'", content_security_policy()))
    assert content_security_policy().startswith("default-src 'none'; ")
    assert (
        "unsafe" not in content_security_policy()
        and "connect-src" not in content_security_policy()
        and "connect-src 'self'" in content_security_policy(connect=True)
    )
    assert content_security_policy() in text.replace("&#39;", "'")


def test_hostile_texts_add_no_element_and_no_attribute(tmp_path: Path) -> None:
    (plain, hostile) = (elements(make(tmp_path / name, text)) for name, text in (("a", "x"), ("b", HOSTILE)))
    assert plain.tags == hostile.tags
    assert plain.attributes == hostile.attributes
    assert not [name for name in hostile.attributes if name.startswith("on") or name == "style"]


def test_characters_that_hide_are_shown(tmp_path: Path) -> None:
    text = make(tmp_path, HOSTILE)
    assert "\u202e" not in text and "\x1b" not in text
    assert "\\u202e\\x1b[31m" in text
    assert "{{ 7*7 }}" in text


def test_the_same_run_makes_the_same_bytes(tmp_path: Path) -> None:
    assert make(tmp_path / "a") == make(tmp_path / "b")


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="runs"):
        write_page({"title": "no runs"}, [], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "parts"), [("It learned. By 0.2.", ("It learned.", " By 0.2.")), ("0.5 of it", ("0.5 of it", ""))]
)
def test_the_first_sentence_of_a_verdict(text: str, parts: tuple[str, str]) -> None:
    assert page.first_sentence(text) == parts


@pytest.mark.parametrize("link", ["javascript:alert(1)", "https://x", "//x", "", "data:text/html,x"])
def test_links_lead_nowhere_but_into_the_page(link: str) -> None:
    assert page.link_within_page(link) == "#" and page.link_within_page("#t?step=3") == "#t?step=3"


def test_columns_of_numbers_stand_on_the_right() -> None:
    table = {"columns": list("abcd"), "rows": [[1, "0.72", "12 %", "x"], [None, "−1e-5", "", "3"]]}
    assert page.numeric_columns(table) == [True, True, True, False]


def test_the_tokenizer_is_the_newest_checkpoints(tmp_path: Path) -> None:
    assert page.find_tokenizer(tmp_path) is None
    for name in ("model", "checkpoints/step-000002/hf", "checkpoints/step-000010/hf"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "tokenizer.json").write_text("{}")
    assert page.find_tokenizer(tmp_path) == tmp_path / "checkpoints/step-000010/hf/tokenizer.json"
