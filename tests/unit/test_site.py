"""The pages build as a site without a warning; no page asks another host; the navigation is that of docs/README.md."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.config import load_config

from tests.makers.site import build_site
from tests.paths import ROOT

# Attributes whose address a browser loads by itself; a link that a reader clicks is none of them.
LOADED = {("link", "href"), *((tag, "src") for tag in ("script", "img", "iframe", "source", "video", "audio", "embed")),
          ("img", "srcset"), ("object", "data"), ("form", "action")}  # fmt: skip
ELSEWHERE = re.compile(r"\s*(?:https?:)?//")
IMPORTED = re.compile(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//")


class Requests(HTMLParser):
    """Collects what a page asks other hosts for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        for name, value in attrs:
            if (tag, name) in LOADED and ELSEWHERE.match(value or "") and attributes.get("rel") != "canonical":
                self.found.append(f"{tag} {name}={value}")
            if name == "style" and IMPORTED.search(value or ""):
                self.found.append(f"{tag} style={value}")


def asked(text: str) -> list[str]:
    requests = Requests()
    requests.feed(text)
    return requests.found


def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    build_site(tmp_path)
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert '<h1 id="rlsys">' in pages[tmp_path / "index.html"] and tmp_path / "pages.html" in pages
    assert len(pages) > 40 and tmp_path / "recipes" / "swirl.html" in pages
    assert {str(page): requests for page, text in pages.items() if (requests := asked(text))} == {}
    assert [page for page, text in pages.items() if 'class="mermaid"' in text] == []  # drawn by a script from elsewhere
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", (tmp_path / "llms.txt").read_text(), re.MULTILINE)
    assert len(listed) > 60 and [page for page in listed if not (tmp_path / page).is_file()] == []
    sources = {page: (page.with_suffix(".md"), page.with_name("README.md")) for page in pages if page.stem != "404"}
    assert [page for page, places in sources.items() if not any(place.is_file() for place in places)] == []
    assert [sheet for sheet in tmp_path.rglob("*.css") if IMPORTED.search(sheet.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.b/c.js"></script>',
        '<link rel="stylesheet" href="//a.b/c.css">',
        '<img src="http://a.b/c.png">',
        '<p style="background: url(https://a.b/c.png)">',
    ],
)
def test_a_page_that_asks_another_host_is_found(text: str) -> None:
    assert asked(text)


def test_a_link_that_a_reader_clicks_is_no_request() -> None:
    assert asked('<a href="https://arxiv.org/abs/2504.04736">paper</a><img src="loop.svg">') == []


def navigation(entries: list[object]) -> Iterator[str]:
    for entry in entries:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from navigation(inner) if isinstance(inner, list) else [str(inner)]


def test_the_navigation_has_the_pages_of_the_index_in_its_order() -> None:
    pages = [*navigation(load_config(str(ROOT / "mkdocs.yml")).nav or [])]
    listed = re.findall(r"\]\(([^)#:]+\.md)\)", (ROOT / "docs" / "README.md").read_text().partition("\n## ")[2])
    ours = [page for page in pages if (ROOT / "docs" / page).exists()]
    sections = [page for page in ours if not page.startswith("rewards/") or page == "rewards/README.md"]
    assert [page for page in listed if not page.startswith("../")] == sections
