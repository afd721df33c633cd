"""Calls behind `[TOOL_CALLS]`: the family mistral."""

from __future__ import annotations

from collections.abc import Sequence

from envs.protocols.families.family import MAX_CALLS, Family
from envs.protocols.families.written_json import BROKEN, MAX_NAME, decode, dump, make_call, skip_space
from envs.text.words import THOUGHT_CLOSE, THOUGHTS
from rlsys.types import ToolCall

TOOL_CALLS, CALL_ID_MARK, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
THINK_CLOSE = THOUGHTS[1][1]
MAX_HEAD = MAX_NAME + len(CALL_ID_MARK) + 40 + len(ARGS)  # characters of a name with an id, before its arguments


def _read_mistral(text: str) -> tuple[ToolCall, ...]:
    """A mark inside an argument is text: the next call begins behind the value of the last one."""
    calls: list[ToolCall] = []
    at = text.find(TOOL_CALLS)
    while at >= 0 and len(calls) < MAX_CALLS:
        start, name, call_id = _open_mistral(text, at)
        value, end = decode(text, start)
        end = skip_space(text, end)
        complete = value is not BROKEN and (end == len(text) or text.startswith(TOOL_CALLS, end))
        if not complete:
            calls.append(make_call(BROKEN))
        elif isinstance(value, list) and not name:
            calls += [make_call(entry, "arguments") for entry in value] or [make_call(BROKEN)]
        else:
            calls.append(make_call({"name": name, "arguments": value, "id": call_id}, "arguments"))
        at = text.find(TOOL_CALLS, max(end, at + len(TOOL_CALLS)))
    return tuple(calls[:MAX_CALLS])


def _open_mistral(text: str, at: int) -> tuple[int, str, str]:
    """Of the call with its mark there: where its JSON begins, the name before it, and the id of Mistral Small 3.x."""
    start = skip_space(text, at + len(TOOL_CALLS))
    if text.startswith("[", start) and not text.startswith((CALL_ID_MARK, ARGS), start):
        return start, "", ""
    opened = text.find("{", start, start + MAX_HEAD)
    if opened < 0:
        return start, "", ""
    name, _, call_id = text[start:opened].strip().removesuffix(ARGS).partition(CALL_ID_MARK)
    return opened, name.strip(), call_id.strip()


def _find_mistral_end(text: str, at: int) -> int:
    start, _, _ = _open_mistral(text, at)
    before = text[at + len(TOOL_CALLS) : start]
    if TOOL_CALLS in before or THOUGHT_CLOSE in before or THINK_CLOSE in before:
        return at  # a mention of the mark, and not a call
    value, end = decode(text, start)
    return at if value is BROKEN else end


def _write_mistral(content: str, calls: Sequence[ToolCall]) -> str:
    listed = [
        {"name": call.name, "arguments": call.arguments} | ({"id": call.call_id} if call.call_id else {})
        for call in calls
    ]
    return f"{content}{TOOL_CALLS}{dump(listed)}"


MISTRAL = Family(
    name="mistral",
    tags=(TOOL_CALLS,),
    read=_read_mistral,
    write=_write_mistral,
    opening=TOOL_CALLS,
    end=_find_mistral_end,
    thoughts=THOUGHTS,
)
