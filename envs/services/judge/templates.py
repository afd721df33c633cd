"""Prompts (a judge's is elsewhere `judge_prompt`): files with `{slots}`, checked when read, filled with hostile text.

What a model wrote stands in a fence that is longer than any in the text, the marks of chat templates in it are broken,
the prompt's own labels in it are none, and it is cut. Fields are put in at once: a slot inside a field's text stays
text.
"""

from __future__ import annotations

import re
from pathlib import Path

from envs.services.judge.kinds import KINDS, Field
from envs.services.judge.request import JudgeRequest
from envs.tasks.prompts import PAPERS, strip_comment
from rlsys.errors import BadInput, nearest

FOLDER = Path(__file__).with_name("prompts")
CUT = "[the beginning is left out]\n"
LABEL_WORDS = 4  # of a label, its last ones: by these a judge knows it

_SLOT = re.compile(r"(?<![\\A-Za-z])\{([a-z_]+)\}")  # after a letter it is an argument of LaTeX's
_TILDES = re.compile(r"~+")
# What some tokenizers take for the end of a turn, and the form of a verdict that a judge would quote.
_MARK = re.compile(
    r"<\||\|>|<\uff5c|\uff5c>|</?s>|<(?:bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]|judgement(?:\*\*)?:",
    re.IGNORECASE,
)
# In trusted text (a question about F# has its `|>`), only what would be one token.
_WHOLE_MARK = re.compile(
    r"<\|\w{1,32}\|>|<\uff5c[^\s<>\uff5c]{1,32}\uff5c>|</?s>|<(?:bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]"
)


class BadRequest(BadInput):
    """A request that names no kind, or lacks a field: `field` says which part of it."""

    def __init__(self, field: tuple[str, ...], message: str) -> None:
        super().__init__(f"{'.'.join(field)}: {message}")
        self.field, self.message = field, message


class Prompts:
    """Every kind's prompt: the built-in one, or the one of the user's folder."""

    def __init__(self, folder: str | None = None) -> None:
        """Raises BadInput for a file that is named after no kind, lacks a slot, or has one of another name."""
        files = {path.stem: path for path in FOLDER.glob("*.md")} | _user_prompt_files(folder)
        self._templates = {kind: _read_template(kind, files[kind]) for kind in KINDS}
        self._labels = {kind: _label_pattern(template) for kind, template in self._templates.items()}

    def reads_first_verdict(self, kind: str) -> bool:
        """Whether this kind's prompt is the paper's whose authors read the first verdict."""
        wording = KINDS[kind].papers_wording
        return bool(wording) and "".join(wording.split()) in "".join(self._templates[kind].split())

    def render(self, request: JudgeRequest) -> str:
        """Raises BadRequest."""
        check_request(request)
        fields = KINDS[request.kind].fields
        labels = self._labels[request.kind]
        slots = {name: prepare_field(request.fields[name], field, labels) for name, field in fields.items()}
        return _SLOT.sub(lambda slot: slots[slot[1]], self._templates[request.kind])


def check_request(request: JudgeRequest) -> None:
    """Raises BadRequest."""
    check_kind(request.kind)
    fields = KINDS[request.kind].fields
    for name in fields:
        if name not in request.fields:
            raise BadRequest(("fields", name), f"missing: {request.kind} has the fields {', '.join(fields)}")
    for name in request.fields:
        if name not in fields:
            raise BadRequest(("fields", name[:80]), f"{request.kind} has the fields {', '.join(fields)}")


def check_kind(kind: str) -> None:
    """Raises BadRequest."""
    if kind not in KINDS:
        raise BadRequest(("kind",), f"no kind {kind[:80]!r}{nearest(kind, KINDS)}")


def prepare_field(text: str, field: Field, labels: re.Pattern[str]) -> str:
    """A field's text as it stands in the prompt, in which nothing that a model wrote has a label of the prompt."""
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
    content = text.strip()
    if field.last_lines is not None:
        content = "\n".join(content.split("\n")[-field.last_lines :])
    content = content[-field.max_chars :]
    if not field.hostile:
        return _WHOLE_MARK.sub(_break_mark, content)
    content = (CUT if len(content) < len(text.strip()) else "") + labels.sub(r"\1", _MARK.sub(_break_mark, content))
    fence = "~" * (1 + max([3, *(len(run) for run in _TILDES.findall(content))]))
    return f"{fence}\n{content}\n{fence}"


def _break_mark(mark: re.Match[str]) -> str:
    return f"{mark[0][0]} {mark[0][1:]}" if mark[0][-1] != ":" else f"{mark[0][:-1]} :"


def _label_pattern(template: str) -> re.Pattern[str]:
    """What says which field comes next, such as `The answer key says:` before {answers}; its words are a group."""
    texts = set()
    for slot in _SLOT.finditer(template):
        label = template[: slot.start()].rstrip().rpartition("\n")[2].rpartition("}")[2].strip(" *#>`")
        if label.endswith(":"):
            texts.add(r"\W{1,4}".join(map(re.escape, re.findall(r"\w+", label)[-LABEL_WORDS:])))
    return re.compile(rf"\b({'|'.join(sorted(texts))})[^\w:\n]{{0,4}}[:\uff1a]" if texts else r"(?!)()", re.IGNORECASE)


def _user_prompt_files(folder: str | None) -> dict[str, Path]:
    if folder is None:
        return {}
    printed = {path.parent.name: path for path in PAPERS.glob("*/judge_prompts")}
    place = printed.get(folder, Path(folder))
    if not place.is_dir():
        expected = f"one with prompts such as process.md, or {', '.join(sorted(printed))}"
        raise BadInput("no such folder", where=folder, expected=expected)
    files = {path.stem: path for path in place.glob("*.md")}
    for name, path in files.items():
        if name not in KINDS:
            raise BadInput(f"no kind {name!r}{nearest(name, KINDS)}", where=path)
    return files


def _read_template(kind: str, path: Path) -> str:
    try:
        text = strip_comment(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"not readable as UTF-8 text: {error}", where=path) from error
    fields = KINDS[kind].fields
    slots = set(_SLOT.findall(text))
    missing = [f"{{{name}}}" for name in fields if name not in slots]
    if missing:
        raise BadInput(f"missing {', '.join(missing)}: the prompt {kind} has these fields to show", where=path)
    for slot in sorted(slots - set(fields)):
        raise BadInput(f"{{{slot}}} is no field of {kind}{nearest(slot, fields)}", where=path)
    return text
