"""Calls between `<tool_call>` tags: the families hermes and qwen3_coder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from envs.protocols.families.family import MAX_CALLS, Family
from envs.protocols.families.written_json import MAX_NAME, decode, dump, make_call, skip_space
from rlsys.types import ToolCall

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_CLOSE = "<function=", "</function>"
PARAMETER, PARAMETER_CLOSE = "<parameter=", "</parameter>"


def _read_tagged(text: str, read_one: Callable[[str, int], tuple[ToolCall, int]]) -> tuple[ToolCall, ...]:
    """Calls between tags. read_one: (text, place behind a tag) to the call and where it ends."""
    calls: list[ToolCall] = []
    at = text.find(CALL_OPEN)
    while at >= 0 and len(calls) < MAX_CALLS:
        call, at = read_one(text, skip_space(text, at + len(CALL_OPEN)))
        at = skip_space(text, at)
        closed = text.startswith(CALL_CLOSE, at) or at == len(text)
        if not closed and not call.problem:
            call = replace(call, problem=f"text stands between the call and {CALL_CLOSE}")
        calls.append(call)
        at = text.find(CALL_OPEN, at)
    return tuple(calls)


def _find_call_end(text: str, at: int, read_one: Callable[[str, int], tuple[ToolCall, int]]) -> int:
    call, end = read_one(text, skip_space(text, at + len(CALL_OPEN)))
    end = skip_space(text, end)
    return end if not call.problem and (text.startswith(CALL_CLOSE, end) or end == len(text)) else at


def _read_object(text: str, at: int) -> tuple[ToolCall, int]:
    value, end = decode(text, at)
    return make_call(value, "arguments", "parameters"), end


def _write_hermes(content: str, calls: Sequence[ToolCall]) -> str:
    written = [f"{CALL_OPEN}\n{dump({'name': call.name, 'arguments': call.arguments})}\n{CALL_CLOSE}" for call in calls]
    return "\n".join([content] * bool(content) + written)


def _read_function(text: str, at: int) -> tuple[ToolCall, int]:
    """`<function=NAME>`, parameters, `</function>`. A parameter ends at the first tag that closes one."""
    broken = f"the call is not {FUNCTION}NAME>{PARAMETER}KEY>VALUE{PARAMETER_CLOSE}{FUNCTION_CLOSE}"
    end = text.find(">", at, at + len(FUNCTION) + MAX_NAME + 1)
    if not text.startswith(FUNCTION, at) or end < 0:
        return ToolCall(name="", problem=broken), at
    name, arguments = text[at + len(FUNCTION) : end].strip(), dict[str, Any]()
    at = skip_space(text, end + 1)
    while text.startswith(PARAMETER, at):
        middle = text.find(">", at, at + len(PARAMETER) + MAX_NAME + 1)
        end = text.find(PARAMETER_CLOSE, middle) if middle >= 0 else -1
        if end < 0:
            return ToolCall(name=name, problem=broken), at
        value = text[middle + 1 : end]
        if f"\n{PARAMETER}" in value:  # of one that was never closed, and what follows it
            return ToolCall(name=name, problem=broken), at
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[text[at + len(PARAMETER) : middle].strip()] = value
        at = skip_space(text, end + len(PARAMETER_CLOSE))
    if not name or not text.startswith(FUNCTION_CLOSE, at):
        return ToolCall(name=name, problem=broken), at
    return ToolCall(name=name, arguments=arguments), at + len(FUNCTION_CLOSE)


def _read_functions(text: str) -> tuple[ToolCall, ...]:
    """Whole functions count without the tags around them too, as the models leave these out."""
    if CALL_OPEN in text:
        return _read_tagged(text, _read_function)
    calls: list[ToolCall] = []
    at, attempts = text.find(FUNCTION), 0
    while at >= 0 and attempts < MAX_CALLS:
        call, end = _read_function(text, at)
        calls += [call] * (not call.problem)
        at, attempts = text.find(FUNCTION, max(end, at + 1)), attempts + 1
    return tuple(calls)


def _find_function_end(text: str, at: int) -> int:
    """A value is any text: one that holds another call's tag belongs to a call that was broken off."""
    end = _find_call_end(text, at, _read_function)
    return at if CALL_OPEN in text[at + len(CALL_OPEN) : end] else end


def _write_function(content: str, calls: Sequence[ToolCall]) -> str:
    def write(call: ToolCall) -> str:
        parameters = [
            f"{PARAMETER}{key}>\n{value if isinstance(value, str) else dump(value)}\n{PARAMETER_CLOSE}\n"
            for key, value in call.arguments.items()
        ]
        return f"{CALL_OPEN}\n{FUNCTION}{call.name}>\n{''.join(parameters)}{FUNCTION_CLOSE}\n{CALL_CLOSE}"

    return "\n".join([content] * bool(content) + [write(call) for call in calls])


HERMES = Family(
    name="hermes",
    tags=(CALL_OPEN, CALL_CLOSE),
    read=lambda text: _read_tagged(text, _read_object),
    write=_write_hermes,
    opening=CALL_OPEN,
    end=lambda text, at: _find_call_end(text, at, _read_object),
)


QWEN3_CODER = Family(
    name="qwen3_coder",
    tags=(CALL_OPEN, CALL_CLOSE, FUNCTION, FUNCTION_CLOSE, PARAMETER, PARAMETER_CLOSE),
    read=_read_functions,
    write=_write_function,
    opening=CALL_OPEN,
    end=_find_function_end,
    typed=False,
)
