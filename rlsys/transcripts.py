"""A line that `rlsys score` reads: a transcript of a run, or one from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import decode, format_value, json_object
from rlsys.records import ROLES, are_counts, is_count, read_messages, read_samples
from rlsys.rollout import EpisodeBroken
from rlsys.types import Failure, FailureKind, Message, Task, Transcript

HERE = "this line"


def read_transcript(line: bytes, split: Callable[[str], tuple[Message, ...]]) -> Transcript:
    """A line that is to be scored: `{"task": {...}, "response": "..."}`, or a trajectory of a run.

    split: a response in one string to messages. Raises BadInput that names the key, and EpisodeBroken for a trajectory
    that broke before it could be scored: half a conversation has no reward, and no zero either.
    """
    record = json_object(line, HERE)
    failure = record.get("failure")
    if isinstance(failure, dict) and failure.get("kind") in list(FailureKind) and record.get("ended") is None:
        raise EpisodeBroken(decode(Failure, {"where": "", "detail": "", **failure}))
    row = _optional_field(record, "task", OBJECT)
    if row is None:
        raise BadInput('no "task"', where=HERE)
    # One name for all: rewards remember what they have read by it, and the failure says which line it is. The forms
    # differ: what only one reward reads is checked by that reward, from the record.
    question, key = _optional_field(row, "question", TEXT, "task."), _optional_field(row, "answers", TEXTS, "task.")
    task = Task(task_id="of this line", question=question or "", answers=tuple(key or ()), record=row)
    response, messages = _optional_field(record, "response", TEXT), _optional_field(record, "messages", LIST)
    if (response is None) == (messages is None):
        problem = 'neither "response" nor' if response is None else '"response" and'
        raise BadInput(f'{problem} "messages"', where=HERE, expected="one of the two")
    tokens = _flat_token_ids(_optional_field(record, "token_ids", TOKENS))
    if tokens is None and "tokenizer" in record:  # without it, "samples" has another meaning
        samples = read_samples(record, "samples", HERE)
        tokens = tuple(token for part in samples for start, end in part.sampled for token in part.token_ids[start:end])
    judgements = _optional_field(record, "judgements", TEXTS)
    return Transcript(
        task=task,
        messages=read_messages(messages, f"{HERE}: messages", ROLES[:3]) if response is None else split(response),
        truncated=_optional_field(record, "truncated", FLAG) or False,
        token_ids=tokens,
        num_tokens=_optional_field(record, "num_tokens", COUNT),
        correct=_optional_field(record, "correct", FLAG),
        judgements=None if judgements is None else tuple(judgements),
        state=_optional_field(record, "state", OBJECT),
    )


# What a field may hold: in the words of an error, and as a check.
Kind = tuple[str, Callable[[Any], bool]]
OBJECT: Kind = "an object", lambda value: isinstance(value, dict)
LIST: Kind = "a list", lambda value: isinstance(value, list)
TEXT: Kind = "a text", lambda value: isinstance(value, str)
TEXTS: Kind = "a list of texts", lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value)
FLAG: Kind = "true or false", lambda value: isinstance(value, bool)
COUNT: Kind = "a whole number, 0 or more", is_count

TOKENS: Kind = (
    "a list of whole numbers, 0 or more",  # of the whole response, or by turn
    lambda value: are_counts(value) or (isinstance(value, list) and all(map(are_counts, value))),
)


def _optional_field(record: Mapping[str, Any], key: str, kind: Kind, inside: str = "") -> Any:
    """A field, or None where it is absent or null. Raises BadInput for what does not fit."""
    value = record.get(key)
    expected, fits = kind
    if value is not None and not fits(value):
        raise BadInput(where=HERE, key=f'"{inside}{key}"', found=format_value(value), expected=expected)
    return value


def _flat_token_ids(tokens: list[Any] | None) -> tuple[int, ...] | None:
    if tokens is None:
        return None
    return tuple(token for entry in tokens for token in (entry if isinstance(entry, list) else (entry,)))
