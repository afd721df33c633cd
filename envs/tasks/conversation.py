"""Rows that hold a prompt or a conversation, as TRL's data sets do: "prompt" and "completion", or "messages"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envs.tasks.files import Located, number_text, text_field
from envs.text.words import last_boxed
from rlsys.errors import BadInput
from rlsys.message_keys import refuse_other_keys
from rlsys.types import Message, Task

ROLES = ("system", "user", "assistant", "tool")
ANSWERS = ("answers", "answer", "ground_truth", "solution")  # the first that a row has
FINAL = "#### "  # of GSM8K: the result stands behind it


def read_messages(value: object, where: str, key: str) -> tuple[Message, ...]:
    """`[{"role": "user", "content": "2 + 3?"}]`, contents as texts or as lists of text parts.

    Raises BadInput for anything else, such as pictures and calls of tools.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise BadInput(where=where, key=f'"{key}"', expected='a list such as [{"role": "user", "content": "2 + 3?"}]')
    return tuple(_message(each, where, f"{key}[{index}]") for index, each in enumerate(value))


def _message(value: object, where: str, key: str) -> Message:
    if not isinstance(value, Mapping) or value.get("role") not in ROLES:
        role = value.get("role") if isinstance(value, Mapping) else value
        raise BadInput(where=where, key=f'"{key}.role"', found=str(role)[:40], expected=f"one of {', '.join(ROLES)}")
    refuse_other_keys(value, f"{where}: {key}")
    if value.get("tool_calls"):
        raise BadInput("calls of tools in a prompt are not read", where=where, key=f'"{key}.tool_calls"')
    content = value.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "".join(_text_part(each, where, f"{key}.content") for each in content)
    return Message(role=str(value["role"]), content=text_field({"content": content}, "content", where, blank=True))


def _text_part(value: object, where: str, key: str) -> str:
    if isinstance(value, Mapping) and value.get("type") == "text" and isinstance(value.get("text"), str):
        return str(value["text"])
    raise BadInput("a part of it is no text", where=where, key=f'"{key}"', expected='{"type": "text", "text": ".."}')


def prompt_row(record: Located) -> Task:
    """TRL's "prompt", a text or messages. The question is the text, or the last message of the user.

    The answers are of the first of ANSWERS that is there; a row without one has none: its reward reads other columns.
    """
    fields = record.lower
    return record.task(asked_in(record, fields.get("prompt"), "prompt"), _answers(fields), {"prompt": fields["prompt"]})


def conversation(record: Located) -> Task:
    """TRL's "messages": the last message of the assistant is the completion, all before it the prompt."""
    fields = record.lower
    messages: Any = fields.get("messages")
    roles = [each.role for each in read_messages(messages, record.where, "messages")]
    if "assistant" not in roles[1:]:
        raise BadInput("no message of the assistant after a prompt", where=record.where, key='"messages"')
    last = len(roles) - 1 - roles[::-1].index("assistant")
    more = {"prompt": list(messages[:last]), "completion": list(messages[last : last + 1])}
    return record.task(asked_in(record, messages[:last], "messages"), _answers(fields), more)


def asked_in(record: Located, prompt: Any, key: str) -> str:
    """What a prompt asks. Raises BadInput for one without a message of the user, or without a word in it."""
    if isinstance(prompt, str):
        return record.value_text(prompt, key)
    asked = [each.content for each in read_messages(prompt, record.where, key) if each.role == "user"]
    if not asked or not asked[-1].strip():
        raise BadInput("holds no question", where=record.where, key=f'"{key}"')
    return asked[-1].strip()


def _answers(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """What reads as an answer key; () for a column that holds something else, which a reward function may read."""
    key = next((name for name in ANSWERS if fields.get(name) is not None), "")
    value = fields.get(key)
    texts = list(answer_texts(value if isinstance(value, list | tuple) else [value]))
    if key == "solution":
        texts = [last_boxed(text) or text for text in texts]
    if key == "answer":
        texts = [text.rpartition(FINAL)[2].strip() for text in texts]
    return tuple(text for text in texts if text)


def answer_texts(values: Sequence[object]) -> tuple[str, ...]:
    """Texts and numbers as texts; () where one of them is neither, and a reward function may read them."""
    texts = []
    for each in values:
        if isinstance(each, str):
            texts.append(each.strip())
        elif isinstance(each, int | float) and not isinstance(each, bool):
            texts.append(number_text(each))
        else:
            return ()
    return tuple(texts)
