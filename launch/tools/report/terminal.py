"""A trajectory in a terminal: who said what in words, colour and edge, and nothing that a terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from launch.tools.report.choice import trajectory_name
from launch.tools.report.kept import NONE
from launch.tools.report.packing import Episodes
from launch.tools.report.shown_line import NOTHING, ShownFinding, ShownLine, read_line
from rlsys.jsonl import json_object
from rlsys.records import unpack_floats
from rlsys.types import SampleBegin
from rlsys.untrusted import visible, visible_lines

MODEL, RESULT, PROMPT, BAD, SAMPLE = "bold blue", "yellow", "dim", "bold red", "magenta"
MOST_RETURNED = 600  # characters
FACTS = ("reward", "correct", "advantage", "num_tokens", "end", "truncated", "worker")
LISTED = ("step", "reward", "correct", "tokens", "turns", "end")
LAST_TO_FIT = ("turns", "step", "tokens")  # left out in this order where the texts have less than
LEAST = 36  # characters
TEXTS = ("question", "said", "answer")  # asked, what the model said last, the right answer
MOST_LISTED = 400  # characters of a text of which a line shows the beginning
GAP = "  "
RIGHT = {1: "yes", 0: "no"}
BEGINS: Mapping[str, str] = {
    SampleBegin.CONVERSATION: "new conversation",
    SampleBegin.RETOLD: "history retold: the assistant's messages in it are context, not trained",
    SampleBegin.AGAIN: "continues {} once more",
    SampleBegin.REWRITTEN: "continues {} in other tokens than were sampled",
}


def list_rows(episodes: Episodes, rows: Sequence[int], width: int) -> Iterator[str]:
    """A head, and a line for each row, in columns: the numbers whole, then as much of the texts as has room."""
    texts_of = {
        at: _summary_texts(json_object(content, trajectory_name(episodes, at))) for at, content in episodes.lines(rows)
    }
    texts = [TEXTS, *(texts_of.get(row, ("",) * len(TEXTS)) for row in rows)]
    columns = {name: [name, *(_format_cell(episodes, row, name) for row in rows)] for name in LISTED}
    columns = {"trajectory": ["trajectory", *(trajectory_name(episodes, row) for row in rows)], **columns}
    for name in LAST_TO_FIT:
        if _width_for_texts(columns, width) < LEAST:
            del columns[name]
    room = max(_width_for_texts(columns, width) - len(GAP) * (len(TEXTS) - 1), len(TEXTS) * 4)
    asked, said, answers = (max(map(cell_len, column)) for column in zip(*texts, strict=True))
    answers = min(answers, max(len(TEXTS[-1]), room // 4), room // 3)
    asked = min(asked, max((room - answers) // 2, room - answers - said))
    widths = [max(map(cell_len, column)) for column in columns.values()]
    widths += [asked, room - answers - asked, answers]
    for *cells, line in zip(*columns.values(), texts, strict=True):
        yield GAP.join(map(_fit_width, [*cells, *line], widths)).rstrip()


def _width_for_texts(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """What these columns leave of a line, for the texts."""
    return width - sum(max(map(cell_len, column)) + len(GAP) for column in columns.values())


def _fit_width(text: str, width: int) -> str:
    return set_cell_size(text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "\u2026", width)


def _format_cell(episodes: Episodes, row: int, name: str) -> str:
    if name == "end" and episodes.columns["failure"][row] != NONE:
        name = "failure"
    value = episodes.columns[name][row].item()
    if name in episodes.texts:
        return "" if value == NONE else visible(episodes.texts[name][value])[:60]
    if name == "correct":
        return RIGHT.get(value, "")
    if value == NONE or value != value:
        return ""
    return f"{value:.3f}".replace("-0.000", "0.000") if isinstance(value, float) else str(value)


def _summary_texts(content: Mapping[str, Any]) -> tuple[str, ...]:
    """The question, what the model said last, and the right answer: each in one line, and no more than one has room
    for."""
    line = read_line(content)
    asked = line.task.question or (line.prompt[-1].content if line.prompt else "") or line.task.task_id
    said = [message.content for message in line.messages if message.role == "assistant"]
    texts = (asked if isinstance(asked, str) else "", said[-1] if said else "", line.task.describe_answers())
    return tuple(visible(" ".join(text[:MOST_LISTED].split())) for text in texts)


def show_episode(console: Console, name: str, line: Mapping[str, Any]) -> None:
    """line: a trajectory as its file has it. What is missing in it is left out."""
    for text in draw_episode(name, line):
        console.print(text, soft_wrap=not console.is_terminal, highlight=False)


def draw_episode(name: str, content: Mapping[str, Any]) -> Iterator[Text]:
    line = read_line(content)
    yield _styled_text((name, "bold"), ("  task ", PROMPT), (_visible_text(line.task.task_id), ""))
    facts = {key: getattr(line, key) for key in FACTS}
    fields = [(key, value) for key, value in facts.items() if value not in (None, "", False) or key == "reward"]
    yield Text("  ".join(f"{key} {_visible_text(value)}" for key, value in fields))
    if answers := line.task.describe_answers():
        yield Text(f"answer  {visible(answers)[:MOST_RETURNED]}")
    if parts := line.parts:
        yield Text("parts   " + "  ".join(f"{visible(part)} {_visible_text(value)}" for part, value in parts.items()))
    if (failure := line.failure) is not None and failure.kind is not None:
        where = f"{_visible_text(failure.kind)} in {_visible_text(failure.where)}: {_visible_text(failure.detail)}"
        yield Text(f"failed  {where}", BAD)
    agent = line.agent
    if agent is not None:
        returned = _visible_text(agent.returned)[:MOST_RETURNED] if agent.returned is not NOTHING else "nothing"
        yield Text(f"agent   exit {_visible_text(agent.exit)}  returned {returned}")
    yield from _draw_messages(line)
    if agent is not None and agent.output:
        yield Text()
        yield from _draw_message("agent, the end of its output", agent.output, PROMPT, ())


def _draw_messages(line: ShownLine) -> Iterator[Text]:
    samples, turn = dict(_describe_samples(line)), 0
    for number, message in enumerate([*line.prompt, *line.messages]):
        role, content = message.role, message.content
        matches = [finding for finding in line.findings if finding.message == number]
        yield Text()
        if number in samples:
            yield Text(f"── {samples[number]}", SAMPLE)
        if number < len(line.prompt):
            yield from _draw_message(f"prompt, {role}", content, PROMPT, matches)
        elif role == "assistant":
            name = _turn_name(line, line.turns[turn].number if turn < len(line.turns) else turn)
            turn += 1
            yield from _draw_message(f"model, {name}", content, MODEL, matches)
            if turn <= len(line.judgements):
                yield Text(f"  judge: {_visible_text(line.judgements[turn - 1])}", PROMPT)
        else:
            yield from _draw_message("tool result" if role == "tool" else "environment", content, RESULT, matches)


def _turn_name(line: ShownLine, number: int | None) -> str:
    return f"{'request' if line.agent is not None else 'turn'} {'?' if number is None else number + 1}"


def _describe_samples(line: ShownLine) -> Iterator[tuple[int, str]]:
    """(number of the message it begins with, what is said of it) of each training sample; none where all is one."""
    turns, num_prompt = line.turns, len(line.prompt)
    said = [num_prompt + at for at, message in enumerate(line.messages) if message.role == "assistant"]
    starts = [at for at, turn in enumerate(turns) if turn.begins in BEGINS]
    if not starts:  # of a line without messages, or of a later version
        return
    reset = any(turns[at].begins != SampleBegin.REWRITTEN for at in starts[1:])
    if len(said) != len(turns) or not (reset or line.agent is not None):
        return
    for sample, (at, end) in enumerate(zip(starts, [*starts[1:], len(turns)], strict=True), start=1):
        number, reason = turns[at].number, BEGINS[str(turns[at].begins)]
        reason = reason.format(_turn_name(line, turns[at].after))
        above = ", which begins with the prompt above" if at and number == 0 else ""
        begin = said[at - 1] + 1 if at else num_prompt if number else 0
        yield begin, f"sample {sample}: {reason}{above}; {_describe_trained_tokens(line, at, end)}"


def _describe_trained_tokens(line: ShownLine, start: int, end: int) -> str:
    sampled = sum(len(ids) for ids in line.token_ids[start:end] if isinstance(ids, list))
    try:
        known = [unpack_floats(values) for values in line.token_advantages[start:end]]
    except (TypeError, ValueError):
        known = []
    trained = 0 if line.advantage is None else sampled
    if known:
        trained = int(sum((values == values).sum() for values in known))
    part = "not " if not trained else f"{trained:,} of them " if trained < sampled else ""
    return f"{sampled:,} tokens, {part}trained"


def _draw_message(heading: str, content: str, style: str, findings: Sequence[ShownFinding]) -> Iterator[Text]:
    yield Text(visible(heading), style)
    text = _underline_spans(content, [finding.span for finding in findings])
    for line in text.split("\n", allow_blank=True):
        line.stylize("dim" if style == PROMPT else "")
        yield Text("│ ", style.removeprefix("bold ")) + line
    for finding in findings:
        value = finding.value
        value_text = f"{value:+g}" if isinstance(value, int | float) else _visible_text(value)
        start, end = finding.span
        quoted = content[start:end] if finding.text is None else finding.text
        yield Text(f"  ^ {_visible_text(finding.rule)} {value_text}: “{_visible_text(quoted)}”", "magenta")


def _underline_spans(content: str, spans: Iterable[tuple[int, int]]) -> Text:
    """The text with its spans underlined: both are counted before what is invisible is written out."""
    ranges = [(max(0, start), min(end, len(content))) for start, end in spans]
    cuts = sorted({0, len(content), *(cut for span in ranges for cut in span if 0 <= cut <= len(content))})
    text = Text()
    for begin, end in zip(cuts, cuts[1:], strict=False):
        inside = any(start <= begin and end <= stop for start, stop in ranges)
        text.append(visible_lines(content[begin:end]), "underline" if inside else "")
    return text


def _visible_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(value if isinstance(value, str) else json.dumps(value))


def _styled_text(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*parts)
