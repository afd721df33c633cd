"""The report as one file that needs nothing else: texts by Jinja, charts and trajectories by plain JavaScript.

What runs in it is only what is here: a Content-Security-Policy names the digest of every script and style, and refuses
the network. Data never stands in a script: it is base64 of gzip, and texts are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound

from launch.tools.report.first_screen import LEVELS, TRUST
from launch.tools.report.kept import Room, parse_room
from launch.tools.report.packing import Episodes, Pack, dump_line, embed_in_html, make_pack, shorten, tokens_in
from launch.tools.report.pieces import Pieces
from rlsys.files import whole_file
from rlsys.untrusted import visible_lines

STATIC = Path(__file__).with_name("static")
SCRIPTS = (
    *("uPlot.iife.min.js", "dom.js", "store.js", "filter.js", "list.js", "text.js", "episode.js", "group.js"),
    *("charts.js", "report.js", "main.js"),
)
STYLES = ("uPlot.min.css", "report.css")
KEEP = "20MB"  # of trajectories, so that the whole page is of 25 MB, which browsers open at once
ROOM = parse_room(KEEP)
LONGEST = 100_000  # characters of one text of the report
NUMERIC = re.compile(r"[-+\u2212]?[\d.,]*\d(e[-+]?\d+)?( ?(%|s|MB|GB|tokens))?|")


class _Static(BaseLoader):
    """The page is a template; scripts and styles are taken as they are."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, None]:
        path = STATIC / template
        if template not in (*SCRIPTS, *STYLES, "page.html"):
            raise TemplateNotFound(template)
        text = path.read_text(encoding="utf-8")
        return text if template == "page.html" else "{% raw %}" + text + "{% endraw %}", str(path), None


class Packed(str):
    """Base64, of any length."""


def _make_visible(value: Any) -> Any:
    """Each text of the report as the page has it: bounded, and with characters visible that would hide or reorder."""
    return visible_lines(shorten(value, LONGEST)) if type(value) is str else value


@cache
def jinja_environment() -> Environment:
    templates = Environment(
        loader=_Static(), autoescape=True, undefined=StrictUndefined, finalize=_make_visible, keep_trailing_newline=True
    )
    templates.filters.update(
        first_sentence=first_sentence,
        own_link=link_within_page,
        numeric_columns=numeric_columns,
        links_by_row=row_links,
    )
    templates.filters["brief"] = format_brief
    return templates


def first_sentence(text: str) -> tuple[str, str]:
    """ "It learned. From 0.7 to 0.9." is ("It learned.", " From 0.7 to 0.9.")."""
    end = text.find(". ")
    return (text, "") if end < 0 else (text[: end + 1], text[end + 1 :])


def link_within_page(link: str) -> str:
    """A place in the page, and no other."""
    return link if link.startswith("#") else "#"


def numeric_columns(table: Mapping[str, Any]) -> list[bool]:
    """Of each column, whether all of its cells are numbers, which stand on the right."""
    cells = ([row[at] for row in table["rows"] if at < len(row)] for at in range(len(table["columns"])))
    return [all(cell is None or NUMERIC.fullmatch(str(cell)) for cell in column) for column in cells]


def row_links(table: Mapping[str, Any]) -> dict[int, str]:
    return dict(table.get("links") or ())


def format_brief(value: Any) -> str:
    """Four digits of a number: all of them are in report.json."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return "" if value is None else str(value)


def content_security_policy(connect: bool = False) -> str:
    """Of the page: what is not named here does not run, load or connect. connect: to the server that it is from."""
    scripts, styles = (" ".join(f"'{_style_or_script_digest(name)}'" for name in names) for names in (SCRIPTS, STYLES))
    network = "connect-src 'self'; " if connect else ""
    return f"default-src 'none'; script-src {scripts}; style-src {styles}; {network}base-uri 'none'; form-action 'none'"


@cache
def _style_or_script_digest(name: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256((STATIC / name).read_bytes()).digest()).decode()


def write_page(report: Mapping[str, Any], runs: Sequence[Episodes], path: Path, room: Room | None = ROOM) -> None:
    """runs: the episodes of each run of the report, in its order. room: for trajectories, None for all."""
    pack = make_pack(runs, room)
    with whole_file(path) as file:
        for part in page_parts(report, _embed_pack(pack)):
            file.write(part.encode("utf-8", "replace"))


def page_parts(
    report: Mapping[str, Any], data: Iterable[tuple[str, Packed]], *, live: str = "", connect: bool = False
) -> Iterator[str]:
    """data: by name what scripts decode. live: the revision of what is shown, where the page is served."""
    state = {"charts": report.get("charts") or {}, "runs": report["runs"], "time": report.get("time"), "live": live}
    return (
        jinja_environment()
        .get_template("page.html")
        .generate(
            report=report,
            trust=TRUST,
            levels=LEVELS,
            policy=Packed(content_security_policy(connect)),
            scripts=SCRIPTS,
            styles=STYLES,
            charts=Packed(embed_in_html(dump_line(state))),
            data=data,
        )
    )


def _embed_pack(pack: Pack) -> Iterator[tuple[str, Packed]]:
    """One block in memory at a time."""
    tokens: set[int] = set()
    for number, lines in enumerate(pack.lines_by_block()):
        tokens |= tokens_in(lines)
        yield f"block-{number}", Packed(embed_in_html("\n".join(lines)))
    yield "index", Packed(embed_in_html(dump_line(pack.index())))
    yield "pieces", Packed(embed_in_html(dump_line(token_texts(pack.runs, tokens))))


def token_texts(runs: Sequence[Episodes], tokens: Collection[int] | None = None) -> Any:
    """[ids, texts] of these tokens (None: of all), or why there are none.

    Of several runs with the first's tokenizer: runs that are compared have one model.
    """
    path = next((file for run in runs if (file := find_tokenizer(run.folder.parent))), None)
    if path is None:
        return "no tokenizer.json was found in model/ or in a checkpoint's hf/: the texts of single tokens are unknown"
    try:
        pieces = Pieces(path)
        return pieces.table(range(pieces.size) if tokens is None else tokens)
    except ValueError as error:
        return f"the tokenizer cannot be read: {error}"


def find_tokenizer(run: Path) -> Path | None:
    """The newest checkpoint's, else the starting policy's."""
    checkpoints = sorted(run.glob("checkpoints/step-*/hf/tokenizer.json"), reverse=True)
    return next((path for path in (*checkpoints, run / "model/tokenizer.json") if path.is_file()), None)
