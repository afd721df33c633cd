"""A trajectory in a terminal: who said what in words, colour and edge, and nothing that a terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from launch.tools.report.choice import name_of
from launch.tools.report.kept import NONE
from launch.tools.report.packing import Episodes
from rlsys.jsonl import json_object
from rlsys.records import unpack_floats
from rlsys.types import SampleBegin
from rlsys.untrusted import visible, visible_lines

MODEL, RESULT, PROMPT, BAD, SAMPLE = "bold blue", "yellow", "dim", "bold red", "magenta"
MOST_RETURNED = 600  # characters
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
    texts_of = {at: _texts(json_object(line, name_of(episodes, at))) for at, line in episodes.lines(rows)}
    texts = [TEXTS, *(texts_of.get(row, ("",) * len(TEXTS)) for row in rows)]
    columns = {name: [name, *(_cell(episodes, row, name) for row in rows)] for name in LISTED}
    columns = {"trajectory": ["trajectory", *(name_of(episodes, row) for row in rows)], **columns}
    for name in LAST_TO_FIT:
        if _room(columns, width) < LEAST:
            del columns[name]
    room = max(_room(columns, width) - len(GAP) * (len(TEXTS) - 1), len(TEXTS) * 4)
    asked, said, answers = (max(map(cell_len, column)) for column in zip(*texts, strict=True))
    answers = min(answers, max(len(TEXTS[-1]), room // 4), room // 3)
    asked = min(asked, max((room - answers) // 2, room - answers - said))
    widths = [max(map(cell_len, column)) for column in columns.values()]
    widths += [asked, room - answers - asked, answers]
    for *cells, line in zip(*columns.values(), texts, strict=True):
        yield GAP.join(map(_fit, [*cells, *line], widths)).rstrip()


def _room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """What these columns leave of a line, for the texts."""
    return width - sum(max(map(cell_len, column)) + len(GAP) for column in columns.values())


def _fit(text: str, width: int) -> str:
    return set_cell_size(text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "\u2026", width)


def _cell(episodes: Episodes, row: int, name: str) -> str:
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


def _texts(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The question, what the model said last, and the right answer: each in one line, and no more than one has room
    for."""
    task, prompt = _mapping(line.get("task")), _messages(line.get("prompt"))
    asked = task.get("question") or (prompt[-1][1] if prompt else "") or task.get("task_id")
    said = [content for role, content in _messages(line.get("messages")) if role == "assistant"]
    texts = (asked if isinstance(asked, str) else "", said[-1] if said else "", _answers(task))
    return tuple(visible(" ".join(text[:MOST_LISTED].split())) for text in texts)


def _answers(task: Mapping[str, Any]) -> str:
    """The right ones, where the task has some."""
    answers = _list(task.get("answers")) or [task.get("answer")]
    return " | ".join(
        answer if isinstance(answer, str) else json.dumps(answer) for answer in answers if answer is not None
    )


def show_episode(console: Console, name: str, line: Mapping[str, Any]) -> None:
    """line: a trajectory as its file has it. What is missing in it is left out."""
    for text in draw(name, line):
        console.print(text, soft_wrap=not console.is_terminal, highlight=False)


def draw(name: str, line: Mapping[str, Any]) -> Iterator[Text]:
    task, failure = _mapping(line.get("task")), _mapping(line.get("failure"))
    yield _styled((name, "bold"), ("  task ", PROMPT), (_shown(task.get("task_id")), ""))
    facts = ("reward", "correct", "advantage", "num_tokens", "end", "truncated", "worker")
    fields = [(key, line.get(key)) for key in facts if line.get(key) not in (None, "", False) or key == "reward"]
    yield Text("  ".join(f"{key} {_shown(value)}" for key, value in fields))
    if answers := _answers(task):
        yield Text(f"answer  {visible(answers)[:MOST_RETURNED]}")
    parts = _mapping(line.get("parts"))
    if parts:
        yield Text("parts   " + "  ".join(f"{visible(str(part))} {_shown(value)}" for part, value in parts.items()))
    if failure:
        where = f"{_shown(failure.get('kind'))} in {_shown(failure.get('where'))}: {_shown(failure.get('detail'))}"
        yield Text(f"failed  {where}", BAD)
    agent, prompt, messages = _agent(line), _messages(line.get("prompt")), _messages(line.get("messages"))
    if agent:
        returned = _shown(agent["returned"])[:MOST_RETURNED] if "returned" in agent else "nothing"
        yield Text(f"agent   exit {_shown(agent['exit'])}  returned {returned}")
    samples = dict(_samples(line, len(prompt), [role for role, _ in messages]))
    judgements, tree, turn = _list(line.get("judgements")), _tree(line), 0
    findings = [finding for finding in _list(line.get("findings")) if isinstance(finding, Mapping)]
    for number, (role, content) in enumerate([*prompt, *messages]):
        matches = [finding for finding in findings if finding.get("message") == number]
        yield Text()
        if number in samples:
            yield Text(f"── {samples[number]}", SAMPLE)
        if number < len(prompt):
            yield from _draw_message(f"prompt, {role}", content, PROMPT, matches)
        elif role == "assistant":
            name = _name(line, tree[turn].get("number") if turn < len(tree) else turn)
            turn += 1
            yield from _draw_message(f"model, {name}", content, MODEL, matches)
            if turn <= len(judgements):
                yield Text(f"  judge: {_shown(judgements[turn - 1])}", PROMPT)
        else:
            yield from _draw_message("tool result" if role == "tool" else "environment", content, RESULT, matches)
    if agent.get("output") and isinstance(agent["output"], str):
        yield Text()
        yield from _draw_message("agent, the end of its output", agent["output"], PROMPT, ())


def _agent(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an agent left behind, in an episode of one."""
    state = _mapping(line.get("state"))
    return state if state.keys() >= {"exit", "conversations"} else {}


def _tree(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_mapping(turn) for turn in _list(line.get("turns"))]


def _name(line: Mapping[str, Any], number: Any) -> str:
    return f"{'request' if _agent(line) else 'turn'} {number + 1 if type(number) is int else '?'}"


def _samples(line: Mapping[str, Any], num_prompt: int, roles: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(number of the message it begins with, what is said of it) of each training sample; none where all is one."""
    turns, said = _tree(line), [num_prompt + at for at, role in enumerate(roles) if role == "assistant"]
    starts = [at for at, turn in enumerate(turns) if str(turn.get("begins")) in BEGINS]
    if not starts:  # of a line without messages, or of a later version
        return
    reset = any(turns[at]["begins"] != SampleBegin.REWRITTEN for at in starts[1:])
    if len(said) != len(turns) or not (reset or _agent(line)):
        return
    for sample, (at, end) in enumerate(zip(starts, [*starts[1:], len(turns)], strict=True), start=1):
        number, reason = turns[at].get("number"), BEGINS[str(turns[at]["begins"])]
        reason = reason.format(_name(line, turns[at].get("after")))
        above = ", which begins with the prompt above" if at and number == 0 else ""
        begin = said[at - 1] + 1 if at else num_prompt if number else 0
        yield begin, f"sample {sample}: {reason}{above}; {_trained(line, at, end)}"


def _trained(line: Mapping[str, Any], start: int, end: int) -> str:
    sampled = sum(len(_list(ids)) for ids in _list(line.get("token_ids"))[start:end])
    try:
        known = [unpack_floats(values) for values in _list(line.get("token_advantages"))[start:end]]
    except (TypeError, ValueError):
        known = []
    trained = 0 if line.get("advantage") is None else sampled
    if known:
        trained = int(sum((values == values).sum() for values in known))
    part = "not " if not trained else f"{trained:,} of them " if trained < sampled else ""
    return f"{sampled:,} tokens, {part}trained"


def _draw_message(heading: str, content: str, style: str, findings: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    yield Text(visible(heading), style)
    text = _underlined(content, [_span(finding) for finding in findings])
    for line in text.split("\n", allow_blank=True):
        line.stylize("dim" if style == PROMPT else "")
        yield Text("│ ", style.removeprefix("bold ")) + line
    for finding in findings:
        value = finding.get("value")
        value_text = f"{value:+g}" if isinstance(value, int | float) else _shown(value)
        start, end = _span(finding)
        quoted = finding.get("text") if isinstance(finding.get("text"), str) else content[start:end]
        yield Text(f"  ^ {_shown(finding.get('rule'))} {value_text}: “{_shown(quoted)}”", "magenta")


def _span(finding: Mapping[str, Any]) -> tuple[int, int]:
    start, end = finding.get("start"), finding.get("end")
    return (start, end) if type(start) is int and type(end) is int else (0, 0)


def _underlined(content: str, spans: Iterable[tuple[int, int]]) -> Text:
    """The text with its spans underlined: both are counted before what is invisible is written out."""
    ranges = [(max(0, start), min(end, len(content))) for start, end in spans]
    cuts = sorted({0, len(content), *(cut for span in ranges for cut in span if 0 <= cut <= len(content))})
    text = Text()
    for begin, end in zip(cuts, cuts[1:], strict=False):
        inside = any(start <= begin and end <= stop for start, stop in ranges)
        text.append(visible_lines(content[begin:end]), "underline" if inside else "")
    return text


def _messages(value: Any) -> list[tuple[str, str]]:
    messages = [message for message in _list(value) if isinstance(message, Mapping)]
    return [(str(message.get("role")), str(message.get("content", ""))) for message in messages]


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
