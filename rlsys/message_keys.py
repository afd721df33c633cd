"""The keys of a message in a user's data: those that are read, and those that change nothing that is learned.

Any other one is refused by its name: what it says, such as a thought or that a message is not to be learned, would be
lost without a word.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import format_value

CALLS = frozenset(("calls", "tool_calls"))
OF_TOOL = frozenset(("tool", "name", "call_id", "tool_call_id"))
READ = frozenset(("role", "content", "inline")) | CALLS | OF_TOOL
# Who wrote a message, when, and where it comes from.
HARMLESS = frozenset(
    ("id", "uid", "uuid", "message_id", "parent_id", "index", "turn", "timestamp", "created", "created_at", "date")
    + ("model", "source", "lang", "language")
)
# Of a call of a tool, OpenAI's and ours; the other keys of a call would be arguments that it lacks.
OF_CALL = frozenset(("id", "call_id", "type", "index", "function", "name", "arguments", "problem", "status", "strict"))
LEARNED = ("weight", "train", "training", "trainable", "loss", "mask", "eot")  # whether a message is
ROLES = ("system", "developer", "user", "human", "assistant", "gpt", "tool", "function")
HINTS = {
    **dict.fromkeys(
        ("reasoning_content", "reasoning", "thinking", "thought"),
        'a thought within "content", as the chat template of the model writes it',
    ),
    **dict.fromkeys(
        LEARNED,
        "a row in which every message of the assistant after the prompt is learned",
    ),
    "function_call": '"tool_calls"',
    **dict.fromkeys(("parameters", "args", "input"), '"arguments"'),
    "name": 'a name within "content"; as a key it is that of a tool',
}


def refuse_other_keys(message: Mapping[str, Any], where: str) -> None:
    """Raises BadInput for a key with a value that nothing would read. That the assistant's messages are learned, and no
    others, is what holds without."""
    for key, value in message.items():
        usual = key in LEARNED and value == (message.get("role") == "assistant") or (key == "weight" and value == 1)
        if key in HARMLESS or _says_nothing(key, value) or usual:
            continue
        role = "tool" if key in OF_TOOL else "assistant" if key in CALLS else message.get("role")
        if key in READ and message.get("role") == role:
            continue
        expected = HINTS.get(key, f"one of {', '.join(sorted(READ))}, or a key that changes nothing")
        raise BadInput(where=where, key=f'"{key}"', found=format_value(value), expected=expected)


def refuse_other_call_keys(call: Mapping[str, Any], where: str) -> None:
    """The same of a call within a message, and of the "function" within it."""
    for key, value in call.items():
        if key not in OF_CALL and not _says_nothing(key, value):
            expected = HINTS.get(key, '"name" and "arguments"')
            raise BadInput(where=where, key=f'"tool_calls.{key}"', found=format_value(value), expected=expected)


def refuse_packed(text: str, where: str, key: str) -> None:
    """Raises BadInput for messages that were written into a column of texts, as JSON or as Python writes them: they
    would be read as that text."""
    if not text.lstrip().startswith(("[{", "{")) or "content" not in text:
        return
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            packed = parse(text.strip())
            messages = packed if isinstance(packed, list) else [packed]
            if all(isinstance(entry, dict) and "content" in entry and entry.get("role") in ROLES for entry in messages):
                expected = "the messages themselves, a list of objects"
                raise BadInput("is messages written as a text", where=where, key=f'"{key}"', expected=expected)


def _says_nothing(key: str, value: object) -> bool:
    empty = isinstance(value, str | list | dict) and not value
    return value is None or empty or (value is False and key not in LEARNED)
