"""What `rlsys score` reads and writes: a line of JSON to a transcript, and a reward or a failure to a line of JSON.

The rewards are those of training, called as in training; only who fills the transcript is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envs.protocols import PROTOCOLS, Inline
from envs.rewards import RewardFunction
from envs.rewards.grading import Grades, NeedsGrading, graded
from envs.rewards.judging import NeedsJudging, judged
from envs.rewards.transcript import split_inline
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import Asks
from envs.tasks.config import TaskConfig
from envs.tasks.jsonl import json_object, kind_of
from rlsys.errors import BadInput
from rlsys.rollout import EpisodeBroken, checked
from rlsys.types import Failure, FailureKind, Message, Reward, Task, Transcript

HERE = "this line"
ROLES = ("assistant", "user", "tool")


def inline_of(env: Any, reward: Any) -> Inline | None:
    """How the recipe writes the environment's text into one string: the protocol's way, else the reward's."""
    protocol = PROTOCOLS.get(env.protocol_name) if isinstance(env, TaskConfig) else None
    own: Inline | None = protocol.inline if protocol is not None else None
    return own or getattr(reward, "inline", None)


def read_transcript(line: bytes, inline: Inline | None) -> Transcript:
    """One object of the contract, `{"task": {...}, "response": "..."}`. Raises BadInput that names the key."""
    record = json_object(line, HERE)
    task = _given(record, "task", "an object", lambda value: isinstance(value, dict))
    if task is None:
        raise BadInput(f'{HERE}: no "task"')
    return Transcript(
        task=_task(task),
        messages=_messages(record, inline),
        truncated=_given(record, "truncated", "true or false", lambda value: isinstance(value, bool)) or False,
        token_ids=_given(record, "token_ids", "a list of whole numbers, 0 or more", _are_counts, tuple),
        num_tokens=_given(record, "num_tokens", "a whole number, 0 or more", _is_count),
        correct=_given(record, "correct", "true or false", lambda value: isinstance(value, bool)),
        judgements=_given(record, "judgements", "a list of texts", _are_texts, tuple),
    )


def asks(reward: RewardFunction, transcript: Transcript) -> bool:
    """Whether a judge or a grader has to decide something first: see `decided`."""
    if isinstance(reward, NeedsJudging) and reward.judge.given and reward.judging(transcript):
        return True
    return isinstance(reward, NeedsGrading) and reward.grading(transcript) is not None


async def decided(
    reward: RewardFunction, transcript: Transcript, grader: Grades, find_judge: Callable[[JudgeConfig], Asks]
) -> Transcript:
    """The transcript with what the reward asks others for. Raises what they raise: EpisodeBroken, BadInput."""
    return await graded(reward, await judged(reward, transcript, find_judge), grader)


def outcome(reward: RewardFunction, transcript: Transcript) -> Reward | Failure:
    """A fault boundary: what a reward raises is this transcript's failure and no other's."""
    try:
        return checked(reward(transcript))
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> Failure:
    """What broke, as law 3 wants it: never a zero."""
    if isinstance(error, EpisodeBroken):
        return error.failure
    detail = str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
    kind = FailureKind.TIMEOUT if isinstance(error, TimeoutError) else FailureKind.DATA
    return Failure(kind=kind, where="score", detail=detail)


def to_record(result: Reward | Failure, line: int) -> dict[str, Any]:
    """What is written about input line `line`, counted from 1."""
    if isinstance(result, Failure):
        return {"status": "failure", "kind": str(result.kind), "line": line, "detail": result.detail}
    streams = {stream.name: list(stream.values) for stream in result.streams}
    return {"status": "scored", "reward": result.value, "parts": dict(result.parts), "token_rewards": streams}


# -- fields -----------------------------------------------------------------------------------------------------------


def _task(record: Mapping[str, Any]) -> Task:
    """The forms differ: what only one reward reads is checked by that reward, from the record."""
    question = _given(record, "question", "a text", lambda value: isinstance(value, str), key="task.question")
    key = _given(record, "answers", "a list of texts", _are_texts, tuple, key="task.answers")
    # One name for all: rewards remember what they have read by it, and the failure says which line it is.
    return Task(task_id="of this line", question=question or "", answers=key or (), record=record)


def _messages(record: Mapping[str, Any], inline: Inline | None) -> tuple[Message, ...]:
    response = _given(record, "response", "a text", lambda value: isinstance(value, str))
    messages = _given(record, "messages", "a list", lambda value: isinstance(value, list))
    if (response is None) == (messages is None):
        found = 'neither "response" nor' if response is None else '"response" and'
        raise BadInput(f'{HERE}: {found} "messages", expected one of the two')
    if response is not None:
        return split_inline(response, inline)
    return tuple(_message(message, index) for index, message in enumerate(messages))


def _message(message: Any, index: int) -> Message:
    where = f"messages[{index}]"
    if not isinstance(message, dict):
        raise BadInput(f"{HERE}: {where} is {kind_of(message)}, expected an object")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise BadInput(f"{HERE}: {where}.role is {_shown(role)}, expected one of {', '.join(ROLES)}: no prompt")
    if not isinstance(content, str):
        raise BadInput(f"{HERE}: {where}.content is {kind_of(content)}, expected a text")
    return Message(role=role, content=content)


def _given(
    record: Mapping[str, Any],
    name: str,
    expected: str,
    fits: Callable[[Any], bool],
    build: Callable[[Any], Any] = lambda value: value,
    *,
    key: str = "",
) -> Any:
    """A field, or None where it is absent or null. Raises BadInput for what does not fit."""
    value = record.get(name)
    if value is None:
        return None
    if not fits(value):
        raise BadInput(f'{HERE}: "{key or name}" is {_shown(value)}, expected {expected}')
    return build(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _shown(value: object) -> str:
    """Short; what is long is told by its kind."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        odd = next((f" with {kind_of(each)}" for each in value if not isinstance(each, type(value[0]))), "")
        return f"{kind_of(value)}{odd}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 40 else kind_of(value)
