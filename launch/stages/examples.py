"""Examples to train on, from JSON lines: answers for an sft stage, preference pairs for a dpo stage.

    {"prompt": P, "messages": M}  or  {"prompt": P, "response": M}        an answer; "prompt" may lead the messages
    {"prompt": P, "chosen": M, "rejected": M}                             a pair

P and M are a text or a list of {"role", "content"}. What `generate` wrote also has the tokens as they were sampled:
where they are of the same tokenizer they are what is trained, and nothing is tokenised again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors.renderer import ChatRenderer
from envs.tasks.jsonl import kind_of
from rlsys.errors import BadInput
from rlsys.types import Message, Sample

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One sample as it was sampled: token_ids[start:end] of each span are the policy's own."""

    token_ids: tuple[int, ...]  # [L]
    sampled: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    messages: tuple[Message, ...]  # after the prompt: assistant is the model
    tokens: tuple[Tokens, ...] = ()  # empty where it comes from elsewhere
    truncated: bool = False  # a token limit cut it off: its text has no end to learn


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A prompt with one answer, or with [chosen, rejected]."""

    prompt: tuple[Message, ...]
    answers: tuple[Answer, ...]
    tokenizer: str  # of the answers' tokens
    names: tuple[str, ...]  # of its prompt, and of its task: examples that share one are never on two sides of a split


def read_answer(record: dict[str, Any], where: str) -> Example:
    """An example with one answer. Raises BadInput that names the line and the key."""
    keys = [key for key in ("messages", "response") if key in record]
    if len(keys) != 1:
        found = 'both "messages" and' if keys else 'neither "messages" nor'
        raise BadInput(f'{where}: {found} "response": expected one of them')
    messages = _messages(record[keys[0]], "assistant", f'{where}: "{keys[0]}"')
    if "prompt" in record:
        prompt = _messages(record["prompt"], "user", f'{where}: "prompt"')
    else:
        first = next((index for index, each in enumerate(messages) if each.role == "assistant"), 0)
        prompt, messages = messages[:first], messages[first:]
        if not prompt:
            raise BadInput(f'{where}: no "prompt", and no message before the assistant\'s first')
    tokens, truncated = _tokens(record, "samples", where), record.get("truncated") is True
    return _example(record, where, prompt, [Answer(messages=messages, tokens=tokens, truncated=truncated)])


def read_pair(record: dict[str, Any], where: str) -> Example:
    """An example with two answers, the better one first. Raises BadInput that names the line and the key."""
    for key in ("prompt", "chosen", "rejected"):
        if key not in record:
            raise BadInput(f'{where}: no "{key}", expected {{"prompt", "chosen", "rejected"}}')
    prompt = _messages(record["prompt"], "user", f'{where}: "prompt"')
    answers = [
        Answer(
            messages=_messages(record[key], "assistant", f'{where}: "{key}"'),
            tokens=_tokens(record, f"{key}_samples", where),
            truncated=record.get(f"{key}_truncated") is True,
        )
        for key in ("chosen", "rejected")
    ]
    if any(len(answer.tokens) > 1 for answer in answers):
        raise BadInput(f"{where}: an answer of a pair in several samples, expected one each")
    if answers[0] == answers[1]:
        raise BadInput(f'{where}: "chosen" and "rejected" are the same')
    return _example(record, where, prompt, answers)


def samples_of(example: Example, renderer: ChatRenderer, tokenizer: str, stop: Sequence[str]) -> list[list[Sample]]:
    """The training samples of each answer.

    tokenizer: this policy's (`launch.stages.trajectories.tokenizer_id`). stop: the strings that end a message of the
    policy in this environment; an answer from elsewhere that ends in none of them is ended as the model ends a message.
    """
    found: list[list[Sample]] = []
    for answer in example.answers:
        if answer.tokens and example.tokenizer == tokenizer:
            found.append([given_sample(each.token_ids, _mask(each)) for each in answer.tokens])
        else:
            whole = (*example.prompt, *answer.messages)
            ids, mask = renderer.demonstration(whole, len(example.prompt), stop, truncated=answer.truncated)
            found.append([given_sample(ids, mask)])
    return found


def given_sample(ids: tuple[int, ...], mask: tuple[int, ...]) -> Sample:
    """A sample that nobody's weights are known to have sampled."""
    zeros = (0.0,) * len(ids)
    return Sample(token_ids=ids, loss_mask=mask, behavior_logprobs=zeros, advantages=zeros, versions=(-1,) * len(ids))


def _mask(tokens: Tokens) -> tuple[int, ...]:
    mask = [0] * len(tokens.token_ids)
    for start, end in tokens.sampled:
        mask[start:end] = [1] * (end - start)
    return tuple(mask)


# -- fields -----------------------------------------------------------------------------------------------------------


def _example(record: dict[str, Any], where: str, prompt: tuple[Message, ...], answers: list[Answer]) -> Example:
    for answer in answers:
        says = any(message.role == "assistant" and message.content for message in answer.messages)
        if not says and not answer.tokens:  # what was sampled may be the end of the message alone
            raise BadInput(f"{where}: an answer in which the assistant says nothing")
    said = json.dumps([[message.role, message.content] for message in prompt])
    digest = hashlib.blake2b(said.encode(), digest_size=12).hexdigest()
    task = record.get("task_id") or (record["task"].get("task_id") if isinstance(record.get("task"), dict) else None)
    return Example(
        prompt=prompt,
        answers=tuple(answers),
        tokenizer=str(record.get("tokenizer", "")),
        names=(digest, f"task {task}") if task else (digest,),
    )


def _messages(value: Any, role: str, where: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        value = [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else kind_of(value)
        raise BadInput(f"{where} is {found}, expected a text or a list of messages")
    return tuple(_message(each, f"{where}[{index}]") for index, each in enumerate(value))


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise BadInput(f'{where} is {kind_of(value)}, expected {{"role", "content"}}')
    role, content = value.get("role"), value.get("content")
    if role not in ROLES:
        raise BadInput(f'{where}: "role" is {role!r}, expected one of {", ".join(ROLES)}')
    if not isinstance(content, str):
        raise BadInput(f'{where}: "content" is {kind_of(content)}, expected a text')
    if any("\ud800" <= character <= "\udfff" for character in content):
        raise BadInput(f'{where}: "content" holds half of a surrogate pair: not a text')
    return Message(role=role, content=content, inline=value.get("inline") is True)


def _tokens(record: dict[str, Any], key: str, where: str) -> tuple[Tokens, ...]:
    value = record.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BadInput(f'{where}: "{key}" is no list of objects')
    return tuple(_one_sample(each, f'{where}: "{key}"[{index}]') for index, each in enumerate(value))


def _one_sample(value: dict[str, Any], where: str) -> Tokens:
    ids, spans = value.get("token_ids"), value.get("sampled")
    if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
        raise BadInput(f'{where}: "token_ids" is no list of whole numbers')
    if not isinstance(spans, list) or not spans:
        raise BadInput(f'{where}: "sampled" is no list of [start, end]')
    last = 1  # nothing predicts the first token
    for span in spans:
        fits = isinstance(span, list) and len(span) == 2 and all(type(each) is int for each in span)
        if not fits or not last <= span[0] < span[1] <= len(ids):
            raise BadInput(f'{where}: "sampled" holds {span!r}: expected ascending [start, end] within 1:{len(ids)}')
        last = span[1]
    return Tokens(token_ids=tuple(ids), sampled=tuple((start, end) for start, end in spans))
