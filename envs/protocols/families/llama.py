"""Calls as Llama writes them: the families pythonic, `[NAME(KEY=VALUE)]`, and llama3, one JSON object each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from envs.protocols.families.family import MAX_CALLS, Family
from envs.protocols.families.written_json import BROKEN, decode, dump, is_json, make_call, skip_space
from rlsys.types import ToolCall

PYTHON_TAG, PYTHON_START, PYTHON_END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
MAX_NESTED = 32  # lists and mappings inside each other, in the arguments of a Python call
NOT_PYTHON = "the call is not [NAME(KEY=VALUE)], with texts in quotes"
BEHIND = "text stands behind the call"


def without_tags(text: str) -> str:
    """Without what Llama writes around a call, or not."""
    text = text.strip().removeprefix(PYTHON_TAG)
    if text.startswith(PYTHON_START):
        text = text.removeprefix(PYTHON_START).removesuffix(PYTHON_END)
    return text.strip()


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
BEGINS_PYTHONIC = re.compile(rf"\[\s*{_NAME.pattern}\(\s*(?:\)|{_NAME.pattern}\s*=)")
_STRING = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*\"""", re.DOTALL)
_WORD = re.compile("[A-Za-z]+")
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "\n": ""}
ReadOne = Callable[[str, int], tuple[Any, int]]  # the text and a place in it, to what stands there and where that ends


def _python_items(text: str, at: int, closing: str, read_one: ReadOne) -> tuple[Any, int]:
    """What stands between commas up to `closing`, and where that ends; BROKEN for anything else."""
    items: list[Any] = []
    at = skip_space(text, at)
    while not text.startswith(closing, at):
        item, at = read_one(text, at)
        if item is BROKEN:
            return BROKEN, at
        items.append(item)
        at = skip_space(text, at)
        if text.startswith(",", at):
            at = skip_space(text, at + 1)
        elif not text.startswith(closing, at):
            return BROKEN, at
    return items, at + len(closing)


def _python_value(text: str, at: int, depth: int = MAX_NESTED) -> tuple[Any, int]:
    """A text, a number, a constant of Python's or JSON's, a list or a mapping of these. Nothing is evaluated."""
    if match := _STRING.match(text, at):
        return _ESCAPE.sub(_unescape, match[0][1:-1]), match.end()
    if match := _WORD.match(text, at):
        return _WORDS.get(match[0], BROKEN), match.end()
    opened = text[at : at + 1]
    if opened and opened in "-0123456789":
        return decode(text, at)
    if not opened or opened not in "[({" or not depth:
        return BROKEN, at

    def read(text: str, at: int) -> tuple[Any, int]:
        return _python_value(text, at, depth - 1)

    if opened != "{":
        return _python_items(text, at + 1, "]" if opened == "[" else ")", read)
    pairs, end = _python_items(text, at + 1, "}", lambda text, at: _python_pair(text, at, _STRING, ":", read))
    return (pairs if pairs is BROKEN else dict(pairs)), end


def _python_pair(text: str, at: int, keys: re.Pattern[str], between: str, read: ReadOne) -> tuple[Any, int]:
    key = keys.match(text, at)
    middle = skip_space(text, key.end()) if key else at
    if key is None or not text.startswith(between, middle):
        return BROKEN, at
    value, end = read(text, skip_space(text, middle + 1))
    name = _ESCAPE.sub(_unescape, key[0][1:-1]) if keys is _STRING else key[0]
    return (BROKEN if value is BROKEN else (name, value)), end


def _unescape(match: re.Match[str]) -> str:
    """As Python reads it: what is no escape stays."""
    kind = match[1]
    return chr(int(kind[1:], 16)) if len(kind) > 1 else _ESCAPES.get(kind, match[0])


def _python_call(text: str, at: int) -> tuple[Any, int]:
    name = _NAME.match(text, at)
    if name is None or not text.startswith("(", name.end()):
        return BROKEN, at
    pairs, end = _python_items(
        text, name.end() + 1, ")", lambda text, at: _python_pair(text, at, _NAME, "=", _python_value)
    )
    if pairs is BROKEN or not is_json(dict(pairs)):
        return BROKEN, end
    return ToolCall(name=name[0], arguments=dict(pairs)), end


def _python_calls(text: str, at: int) -> tuple[Any, int]:
    """`[NAME(KEY=VALUE), ..]` that begins there, and where it ends; BROKEN for none."""
    if not BEGINS_PYTHONIC.match(text, at):
        return BROKEN, at
    return _python_items(text, at + 1, "]", _python_call)


def _read_pythonic(text: str) -> tuple[ToolCall, ...]:
    text = without_tags(text)
    if not BEGINS_PYTHONIC.match(text):  # other lists, and links, are answers
        return ()
    calls, end = _python_calls(text, 0)
    if calls is BROKEN:
        return (ToolCall(name="", problem=NOT_PYTHON),)
    if end < len(text):
        calls[-1] = replace(calls[-1], problem=BEHIND)
    return tuple(calls[:MAX_CALLS])


def _find_pythonic_end(text: str, at: int) -> int:
    calls, end = _python_calls(text, at)
    return at if calls is BROKEN else end


def _write_pythonic(content: str, calls: Sequence[ToolCall]) -> str:
    """Content has no place in a message of this family that calls."""
    written = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})" for call in calls
    ]
    return f"[{', '.join(written)}]"


_BEGINS_LLAMA = re.compile(r"\{\s*\"?(?:name|type|function|parameters|arguments)\"?\s*:")


def _read_llama(text: str) -> tuple[ToolCall, ...]:
    """Other objects, and sets of mathematics, are answers. Behind a sentence only whole calls count, to the end; and so
    does a whole list of Python calls, which Llama 3.2 may write in the place of JSON."""
    text = without_tags(text)
    if _BEGINS_LLAMA.match(text):
        return _read_objects(text)
    calls, end = _python_calls(text, 0)
    if calls is not BROKEN and end == len(text):
        return tuple(calls[:MAX_CALLS])
    at, attempts = 0, 0
    while (match := _BEGINS_LLAMA.search(text, at)) and attempts < MAX_CALLS:  # a bound: each may take the whole text
        end, are_calls = _find_objects_end(text, match.start())
        if are_calls and end == len(text):
            calls = _read_objects(text[match.start() :])
            return () if any(call.problem for call in calls) else calls
        at, attempts = max(end, match.end()), attempts + 1
    return ()


def _read_objects(text: str) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    at = 0
    while at < len(text) and len(calls) < MAX_CALLS:
        value, end = decode(text, at)
        calls.append(make_call(value, "parameters", "arguments"))
        at = skip_space(text, end)
        if value is BROKEN or at == len(text):
            break
        if text[at] != ";":
            calls[-1] = replace(calls[-1], problem=BEHIND)
            break
        at = skip_space(text, at + 1)
    return tuple(calls)


def _find_objects_end(text: str, at: int) -> tuple[int, bool]:
    """Of the objects from there on: where they end, and whether each has arguments, as a call's has."""
    are_calls = True
    while True:
        value, end = decode(text, at)
        are_calls = are_calls and isinstance(value, dict) and ("parameters" in value or "arguments" in value)
        at = skip_space(text, end)
        if not are_calls or not text.startswith(";", at):
            return end, are_calls
        at = skip_space(text, at + 1)


def _find_llama_end(text: str, at: int) -> int:
    """Of the object there, and of those that follow it: what a thought says of calls is objects too."""
    end = at
    while True:
        value, after = decode(text, at)
        if value is BROKEN:
            return end
        end, at = after, skip_space(text, after)
        if not text.startswith(";", at):
            return end
        at = skip_space(text, at + 1)


def _write_llama(content: str, calls: Sequence[ToolCall]) -> str:
    """Content has no place in a message of this family that calls."""
    return "; ".join(dump({"name": call.name, "parameters": call.arguments}) for call in calls)


PYTHONIC = Family(
    name="pythonic",
    tags=(PYTHON_START, PYTHON_END),
    read=_read_pythonic,
    write=_write_pythonic,
    opening="[",
    end=_find_pythonic_end,
)
LLAMA3 = Family(
    name="llama3", tags=(PYTHON_TAG,), read=_read_llama, write=_write_llama, opening="{", end=_find_llama_end
)
