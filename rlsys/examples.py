"""Lines that a stage trains on: a prompt with an answer, or with two; of the policy's own tokens or from elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rlsys.asked import normalize_messages
from rlsys.errors import BadInput
from rlsys.jsonl import format_value, kind_of
from rlsys.message_keys import refuse_packed
from rlsys.records import ROLES, Tokens, read_messages, read_samples
from rlsys.row_keys import refuse_columns
from rlsys.types import Message

ECHOED = 32  # characters: an answer may well begin with a short prompt, such as "Hello"
CUT_OFF = ("length", "max_tokens")  # of a server's "finish_reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    messages: tuple[Message, ...]  # after the prompt: assistant is the model
    samples: tuple[Tokens, ...] = ()  # empty where it comes from elsewhere
    truncated: bool = False  # a token limit cut it off: its text has no end to learn


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A prompt with one answer, or with [chosen, rejected]."""

    prompt: tuple[Message, ...]
    answers: tuple[Answer, ...]
    tokenizer: str  # of the answers' samples
    # Of its prompt, of its task, and of its prompt however it is written: examples that share one are never on two
    # sides of a split, which the smallest of them decides.
    names: tuple[str, ...]
    replaced: bool = False  # `prompt` is another one than that with which the answers' samples begin


def read_answer(record: dict[str, Any], where: str) -> Example:
    """`{"prompt": P, "messages": M}` or `{"prompt": P, "response": M}`; the prompt may also lead the messages.

    P and M are a text or a list of {"role", "content"}. Raises BadInput that names the line and the key.
    """
    record = _known_columns(record, where)
    keys = [key for key in ("messages", "response") if key in record]
    if len(keys) != 1:
        problem = 'both "messages" and' if keys else 'neither "messages" nor'
        raise BadInput(f'{problem} "response"', where=where, expected="one of them")
    messages = _read_conversation(record, keys[0], "assistant", where)
    if "prompt" in record:
        refuse_echo(record["prompt"], record[keys[0]], where)
        prompt, messages = split_answer(_read_conversation(record, "prompt", "user", where), messages, where)
    else:
        first = _first_of_assistant(messages) % len(messages)  # none: all of it is the prompt of nothing
        prompt, messages = messages[:first], messages[first:]
        if not prompt:
            raise BadInput('no "prompt", and no message before the assistant\'s first', where=where)
    samples, truncated = read_samples(record, "samples", where), _read_flag(record, "truncated", where)
    truncated = truncated or record.get("finish_reason") in CUT_OFF
    return _make_example(record, where, prompt, [Answer(messages=messages, samples=samples, truncated=truncated)])


def read_pair(record: dict[str, Any], where: str) -> Example:
    """`{"prompt": P, "chosen": M, "rejected": M}`, or without "prompt" both as whole conversations. Raises BadInput
    that names the line and the key."""
    record = _known_columns(record, where)
    for key in ("chosen", "rejected"):
        if key not in record:
            raise BadInput(f'no "{key}"', where=where, expected='{"prompt", "chosen", "rejected"}')
    if "prompt" in record:
        refuse_echo(record["prompt"], record["chosen"], where)  # a bad answer may well repeat it
        own_prompt = _read_conversation(record, "prompt", "user", where)
    else:
        conversation = _read_conversation(record, "chosen", "assistant", where)
        own_prompt = conversation[: _first_of_assistant(conversation)]
        if not own_prompt:
            raise BadInput('no "prompt", and no message before the assistant\'s first', where=where)
    parts = [
        split_answer(own_prompt, _read_conversation(record, key, "assistant", where), where)
        for key in ("chosen", "rejected")
    ]
    prompt, responses = parts[0][0], [messages for _, messages in parts]
    if parts[1][0] != prompt:
        raise BadInput('"chosen" and "rejected" answer two prompts', where=where)
    answers = [
        Answer(
            messages=messages,
            samples=read_samples(record, f"{key}_samples", where),
            truncated=_read_flag(record, f"{key}_truncated", where),
        )
        for key, messages in zip(("chosen", "rejected"), responses, strict=True)
    ]
    if any(len(answer.samples) > 1 for answer in answers):
        raise BadInput("an answer of a pair in several samples", where=where, expected="one each")
    if answers[0] == answers[1]:
        raise BadInput('"chosen" and "rejected" are the same', where=where)
    return _make_example(record, where, prompt, answers)


def _known_columns(record: dict[str, Any], where: str) -> dict[str, Any]:
    """Without what is null: a file that was joined of several has the columns of all. Raises BadInput for a column that
    would change what is learned, and that nothing reads."""
    refuse_columns(record, where, taught=True)
    return {key: value for key, value in record.items() if value is not None}


def _read_flag(record: Mapping[str, Any], key: str, where: str) -> bool:
    value = record.get(key, False)
    if not isinstance(value, bool):
        raise BadInput(where=where, key=f'"{key}"', found=format_value(value), expected="true or false")
    return value


def refuse_echo(prompt: object, answer: object, where: str) -> None:
    """Raises BadInput for a text that repeats its prompt, a text too: with roles there is nothing to confuse."""
    if isinstance(prompt, str) and isinstance(answer, str) and len(prompt) >= ECHOED and answer.startswith(prompt):
        raise BadInput("an answer whose text begins with the whole prompt", where=where, expected="what follows it")


def split_answer(
    prompt: tuple[Message, ...], messages: tuple[Message, ...], where: str
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(prompt, what comes after it), each once: the answers of many public sets hold the whole conversation. One that
    has a system text before the question has the longer prompt. Raises BadInput for one that begins with another."""
    if messages[: len(prompt)] == prompt:
        return prompt, messages[len(prompt) :]
    if messages[0].role == "assistant" or prompt[-1].role == "assistant":
        return prompt, messages
    leading = messages[: _first_of_assistant(messages)]
    if leading[-len(prompt) :] == prompt or prompt[-len(leading) :] == leading:
        return max(leading, prompt, key=len), messages[len(leading) :]
    if prompt[-1].role == "user":
        raise BadInput("an answer that begins with another prompt than its own", where=where, key='"prompt"')
    return prompt, messages  # a system text, and then the question


def _first_of_assistant(messages: tuple[Message, ...]) -> int:
    return next((index for index, message in enumerate(messages) if message.role == "assistant"), len(messages))


def _make_example(record: dict[str, Any], where: str, prompt: tuple[Message, ...], answers: list[Answer]) -> Example:
    for answer in answers:
        if not answer.samples:  # what was sampled may be the end of the message alone
            require_learnable(answer.messages, where)
    digest = _digest([[message.role, message.content] for message in prompt])
    task_record = record.get("task")
    task = record.get("task_id") or (task_record.get("task_id") if isinstance(task_record, dict) else None)
    names = (digest, *[f"task {task}"] * bool(task), f"~{_digest(normalize_messages(prompt))}")
    return Example(prompt=prompt, answers=tuple(answers), tokenizer=str(record.get("tokenizer", "")), names=names)


def require_learnable(messages: Sequence[Message], where: str) -> None:
    """Raises BadInput for an answer in which the assistant says nothing, in one of its turns or in all of them, or has
    two turns that nothing parts."""
    turns = [message for message in messages if message.role == "assistant"]
    if not turns or not all(message.content.strip() or message.calls for message in turns):
        raise BadInput("an answer in which the assistant says nothing", where=where)
    for first, second in pairwise(messages):
        if first.role == second.role == "assistant":
            raise BadInput(
                "two messages of the assistant in a row", where=where, expected="one, or a reply between them"
            )


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()


def _read_conversation(record: Mapping[str, Any], key: str, role: str, where: str) -> tuple[Message, ...]:
    """A text or a list of messages, of what a tokenizer can take."""
    value, place = record.get(key), f'{where}: "{key}"'
    if isinstance(value, str):
        refuse_packed(value, where, key)
        value = [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        kind = "an empty list" if value == [] else kind_of(value)
        raise BadInput(where=where, key=f'"{key}"', found=kind, expected="a text or a list of messages")
    messages = read_messages(value, place, ROLES)
    for index, message in enumerate(messages):
        if any("\ud800" <= character <= "\udfff" for character in message.content):
            raise BadInput(f"{place}[{index}].content holds half of a surrogate pair: not a text")
    return messages
