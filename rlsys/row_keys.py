"""The columns of a user's row that would change what a model is shown or taught, and that nothing here reads.

Such a row is refused by the column's name. All other columns are a reward function's, or say where a row comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import format_value

TEXT_ALONE = "rows of text: a model that reads pictures or sound is not trained"
SHOWN = {
    **dict.fromkeys(("image", "images", "video", "videos", "audio", "audios"), TEXT_ALONE),
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


def refuse_columns(row: Mapping[str, Any], where: str, *, taught: bool = False) -> None:
    """Raises BadInput for a column with a value that nothing would read. taught: the row has an answer to learn."""
    refused = SHOWN | TAUGHT if taught else SHOWN
    for key, value in row.items():
        expected = refused.get(key.casefold())
        says_nothing = value is None or (isinstance(value, str | list | dict) and not value)
        usual = (key == "weight" and value == 1) or (key == "label" and value is not False)
        if expected is not None and not says_nothing and not usual:
            raise BadInput(where=where, key=f'"{key}"', found=format_value(value), expected=expected)
