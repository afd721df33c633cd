"""Lines that a stage trains on: a prompt with an answer, or with two; of the policy's own tokens or from elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import kind_of
from rlsys.records import ROLES, Tokens, read_messages, read_samples
from rlsys.types import Message


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
    names: tuple[str, ...]  # of its prompt, and of its task: examples that share one are never on two sides of a split
    replaced: bool = False  # `prompt` is another one than that with which the answers' samples begin


def read_answer(record: dict[str, Any], where: str) -> Example:
    """`{"prompt": P, "messages": M}` or `{"prompt": P, "response": M}`; the prompt may also lead the messages.

    P and M are a text or a list of {"role", "content"}. Raises BadInput that names the line and the key.
    """
    keys = [key for key in ("messages", "response") if key in record]
    if len(keys) != 1:
        found = 'both "messages" and' if keys else 'neither "messages" nor'
        raise BadInput(f'{found} "response"', where=where, expected="one of them")
    messages = _conversation(record, keys[0], "assistant", where)
    if "prompt" in record:
        prompt, messages = _apart(_conversation(record, "prompt", "user", where), messages, where)
    else:
        first = _first_of_assistant(messages) % len(messages)  # none: all of it is the prompt of nothing
        prompt, messages = messages[:first], messages[first:]
        if not prompt:
            raise BadInput('no "prompt", and no message before the assistant\'s first', where=where)
    samples, truncated = read_samples(record, "samples", where), record.get("truncated") is True
    return _example(record, where, prompt, [Answer(messages=messages, samples=samples, truncated=truncated)])


def read_pair(record: dict[str, Any], where: str) -> Example:
    """`{"prompt": P, "chosen": M, "rejected": M}`. Raises BadInput that names the line and the key."""
    for key in ("prompt", "chosen", "rejected"):
        if key not in record:
            raise BadInput(f'no "{key}"', where=where, expected='{"prompt", "chosen", "rejected"}')
    asked = _conversation(record, "prompt", "user", where)
    parts = [_apart(asked, _conversation(record, key, "assistant", where), where) for key in ("chosen", "rejected")]
    prompt, said = parts[0][0], [messages for _, messages in parts]
    if parts[1][0] != prompt:
        raise BadInput('"chosen" and "rejected" answer two prompts', where=where)
    answers = [
        Answer(
            messages=messages,
            samples=read_samples(record, f"{key}_samples", where),
            truncated=record.get(f"{key}_truncated") is True,
        )
        for key, messages in zip(("chosen", "rejected"), said, strict=True)
    ]
    if any(len(answer.samples) > 1 for answer in answers):
        raise BadInput("an answer of a pair in several samples", where=where, expected="one each")
    if answers[0] == answers[1]:
        raise BadInput('"chosen" and "rejected" are the same', where=where)
    return _example(record, where, prompt, answers)


def _apart(
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
    return next((index for index, each in enumerate(messages) if each.role == "assistant"), len(messages))


def _example(record: dict[str, Any], where: str, prompt: tuple[Message, ...], answers: list[Answer]) -> Example:
    for answer in answers:
        says = any(message.role == "assistant" and message.content for message in answer.messages)
        if not says and not answer.samples:  # what was sampled may be the end of the message alone
            raise BadInput("an answer in which the assistant says nothing", where=where)
    said = json.dumps([[message.role, message.content] for message in prompt])
    digest = hashlib.blake2b(said.encode(), digest_size=12).hexdigest()
    given = record.get("task")
    task = record.get("task_id") or (given.get("task_id") if isinstance(given, dict) else None)
    names = (digest, f"task {task}") if task else (digest,)
    return Example(prompt=prompt, answers=tuple(answers), tokenizer=str(record.get("tokenizer", "")), names=names)


def _conversation(record: Mapping[str, Any], key: str, role: str, where: str) -> tuple[Message, ...]:
    """A text or a list of messages, of what a tokenizer can take."""
    value, place = record.get(key), f'{where}: "{key}"'
    if isinstance(value, str):
        value = [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else kind_of(value)
        raise BadInput(where=where, key=f'"{key}"', found=found, expected="a text or a list of messages")
    messages = read_messages(value, place, ROLES)
    for index, message in enumerate(messages):
        if any("\ud800" <= character <= "\udfff" for character in message.content):
            raise BadInput(f"{place}[{index}].content holds half of a surrogate pair: not a text")
    return messages
