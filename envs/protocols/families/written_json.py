"""JSON that a model wrote: hostile text, of which each reader takes a value and the place where it ends."""

from __future__ import annotations

import json
import re
from typing import Any

from rlsys.types import ToolCall

MAX_NAME = 64  # characters of a name, as the field's schemas have it
CALL_ID = re.compile("[A-Za-z0-9]{9}")  # the only ids that every chat template takes
NOT_JSON = "the call is not valid JSON"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
BROKEN = object()


def decode(text: str, at: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends; (BROKEN, at) for none."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return BROKEN, at
    return (value, end) if is_json(value) else (BROKEN, at)


def is_json(value: Any) -> bool:
    """Not so of 1e999, and of half a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def read_json(text: str) -> Any:
    text = text.strip()
    value, end = decode(text, 0)
    return value if end == len(text) else BROKEN


def make_call(value: Any, *keys: str) -> ToolCall:
    """The call that a JSON value is. keys: the names that its arguments may have."""
    if value is BROKEN:
        return ToolCall(name="", problem=NOT_JSON)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        return ToolCall(name="", problem='the call has no "name"')
    own_keys = value.keys() - {"name", "id", "type", *keys}
    if own_keys and not any(key in value for key in keys):
        return ToolCall(name=name, problem=f'the call has {sorted(own_keys)[0][:MAX_NAME]!r} and no "{keys[0]}"')
    raw: Any = next((value[key] for key in keys if key in value), {})
    arguments = read_json(raw) if isinstance(raw, str) else raw  # some models write them as a text
    if not isinstance(arguments, dict):
        return ToolCall(name=name, problem=f'"{keys[0]}" is no JSON object')
    call_id = value.get("id")
    valid_id = isinstance(call_id, str) and CALL_ID.fullmatch(call_id)
    return ToolCall(name=name, arguments=arguments, call_id=call_id if valid_id else "")


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
