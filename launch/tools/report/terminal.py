"""A trajectory in a terminal: who said what in words, colour and edge, and nothing that a terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from launch.tools.report.choice import name_of
from launch.tools.report.kept import NONE
from launch.tools.report.packing import Episodes
from rlsys.untrusted import visible, visible_lines

MODEL, RESULT, PROMPT, BAD = "bold blue", "yellow", "dim", "bold red"
LISTED = ("step", "task_id", "reward", "correct", "tokens", "turns", "end", "failure")
RIGHT = {1: "yes", 0: "no"}


def list_rows(episodes: Episodes, rows: Sequence[int]) -> Iterator[str]:
    """A head, and a line for each row, in columns."""
    table = [("trajectory", *LISTED), *((name_of(episodes, row), *_cells(episodes, row)) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _cells(episodes: Episodes, row: int) -> Iterator[str]:
    for name in LISTED:
        value = episodes.columns[name][row].item()
        if name in episodes.texts:
            yield "" if value == NONE else visible(episodes.texts[name][value])[:60]
        elif name == "correct":
            yield RIGHT.get(value, "")
        else:
            yield "" if value == NONE or value != value else f"{value:.2f}" if isinstance(value, float) else str(value)


def show_episode(console: Console, name: str, line: Mapping[str, Any]) -> None:
    """line: a trajectory as its file has it. What is missing in it is left out."""
    for text in draw(name, line):
        console.print(text, soft_wrap=not console.is_terminal, highlight=False)


def draw(name: str, line: Mapping[str, Any]) -> Iterator[Text]:
    task, failure = _mapping(line.get("task")), _mapping(line.get("failure"))
    yield _styled((name, "bold"), ("  task ", PROMPT), (_shown(task.get("task_id")), ""))
    facts = ("reward", "correct", "advantage", "num_tokens", "end", "truncated", "worker")
    known = [(key, line.get(key)) for key in facts if line.get(key) not in (None, "", False) or key == "reward"]
    yield Text("  ".join(f"{key} {_shown(value)}" for key, value in known))
    parts = _mapping(line.get("parts"))
    if parts:
        yield Text("parts   " + "  ".join(f"{visible(str(part))} {_shown(value)}" for part, value in parts.items()))
    if failure:
        where = f"{_shown(failure.get('kind'))} in {_shown(failure.get('where'))}: {_shown(failure.get('detail'))}"
        yield Text(f"failed  {where}", BAD)
    prompt, messages = _messages(line.get("prompt")), _messages(line.get("messages"))
    judgements, turn = _list(line.get("judgements")), 0
    findings = [each for each in _list(line.get("findings")) if isinstance(each, Mapping)]
    for number, (role, content) in enumerate([*prompt, *messages]):
        own = [each for each in findings if each.get("message") == number]
        yield Text()
        if number < len(prompt):
            yield from _draw_message(f"prompt, {role}", content, PROMPT, own)
        elif role == "assistant":
            turn += 1
            yield from _draw_message(f"model, turn {turn}", content, MODEL, own)
            if turn <= len(judgements):
                yield Text(f"  judge: {_shown(judgements[turn - 1])}", PROMPT)
        else:
            yield from _draw_message("tool result" if role == "tool" else "environment", content, RESULT, own)


def _draw_message(who: str, content: str, style: str, findings: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    yield Text(visible(who), style)
    said = _underlined(content, [_span(each) for each in findings])
    for line in said.split("\n", allow_blank=True):
        line.stylize("dim" if style == PROMPT else "")
        yield Text("│ ", style.removeprefix("bold ")) + line
    for each in findings:
        value = each.get("value")
        shown = f"{value:+g}" if isinstance(value, int | float) else _shown(value)
        start, end = _span(each)
        quoted = each.get("text") if isinstance(each.get("text"), str) else content[start:end]
        yield Text(f"  ^ {_shown(each.get('rule'))} {shown}: “{_shown(quoted)}”", "magenta")


def _span(finding: Mapping[str, Any]) -> tuple[int, int]:
    start, end = finding.get("start"), finding.get("end")
    return (start, end) if type(start) is int and type(end) is int else (0, 0)


def _underlined(content: str, spans: Iterable[tuple[int, int]]) -> Text:
    """The text with its spans underlined: both are counted before what is invisible is written out."""
    found = [(max(0, start), min(end, len(content))) for start, end in spans]
    cuts = sorted({0, len(content), *(cut for span in found for cut in span if 0 <= cut <= len(content))})
    text = Text()
    for begin, end in zip(cuts, cuts[1:], strict=False):
        inside = any(start <= begin and end <= stop for start, stop in found)
        text.append(visible_lines(content[begin:end]), "underline" if inside else "")
    return text


def _messages(value: Any) -> list[tuple[str, str]]:
    found = [each for each in _list(value) if isinstance(each, Mapping)]
    return [(str(each.get("role")), str(each.get("content", ""))) for each in found]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(value if isinstance(value, str) else json.dumps(value))


def _styled(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*parts)
