"""The columns of a user's row that would change what a model is shown or taught, and that nothing here reads.

Such a row is refused by the column's name. All other columns are a reward function's, or say where a row comes from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import format_value

TEXT_ALONE = "rows of text: a model that reads pictures or sound is not trained"
SHOWN = {
    **dict.fromkeys(("image", "images", "picture", "pictures", "video", "videos", "audio", "audios"), TEXT_ALONE),
    **dict.fromkeys(("system", "system_prompt"), "a message of the system before the question, or env.system"),
    **dict.fromkeys(("tools", "functions"), "the tools in env.tools, for all rows"),
    "history": 'the earlier turns in "messages"',
    "chat_template_kwargs": "env.template_args, for all rows",
}
# Of a row with an answer to learn.
TAUGHT = {
    **dict.fromkeys(("system", "system_prompt"), "a message of the system before the question"),
    **dict.fromkeys(
        ("reasoning", "reasoning_content", "thinking", "thought"),
        "a thought within the answer, as the chat template of the model writes it",
    ),
    "label": "rows whose answer is to be learned: of KTO's those with true",
    **dict.fromkeys(("weight", "loss_mask"), "rows that all count alike, with every message of the assistant learned"),
}

LISTS: Mapping[str, tuple[type, ...]] = {"tools": (dict,), "functions": (dict,), "history": (dict, list, str)}


def refuse_columns(row: Mapping[str, Any], where: str, *, taught: bool = False) -> None:
    """Raises BadInput for a column with a value that nothing would read. taught: the row has an answer to learn."""
    refused = SHOWN | TAUGHT if taught else SHOWN
    for key, value in row.items():
        expected = refused.get(key.casefold())
        if expected is not None and _says_something(key.casefold(), value):
            raise BadInput(where=where, key=f'"{key}"', found=format_value(value), expected=expected)


def _says_something(key: str, value: object) -> bool:
    if key == "label":
        return str(value).casefold() == "false"  # 0 may be a class
    if key == "weight":
        return value is not None and str(value) not in ("", "1", "1.0")
    if key == "loss_mask":
        return value is not None
    if key in LISTS:  # another value is a name or a number, for a reward function
        listed = _parse(value)
        return isinstance(listed, list) and any(isinstance(entry, LISTS[key]) and entry for entry in listed)
    return value is not False and not _is_empty(_parse(value))


def _parse(value: object) -> object:
    """A list or an object, also one that was written into a text."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{", "n"):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _is_empty(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())
