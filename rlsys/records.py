"""The JSON of a trajectory, a group, a pair, a reward and a failure: the one form of all files, written and read here.

    {"task": {"task_id", "question", "answers", ...}, "sequence": 7, "sibling": 2, "attempt": 0, "worker": "rollout:0",
     "prompt": [...], "messages": [...], "end": "answered", "truncated": false, "reward": 1.0, "parts": {"correct": 1},
     "advantage": 0.3, "num_tokens": 31, "token_ids": [[...]], "logprobs": ["..."], "findings": [...],
     "weight_versions": [[[1, 0, 31]]], "seconds": {...}}

`prompt` is what the model was given and `messages` what followed, so `rlsys score` reads what a run leaves behind. The
sampled tokens stand in a line once, for rewards that look at them: by turn in `token_ids`, or, in what `generate` makes
to be trained on, in `samples`, with the tokens around them and the name of the `tokenizer` they belong to. In an
episode of several training samples, `turns` says which one each continues: [{"number": 2, "after": 0, "begins": ...}].
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlsys.errors import BadInput
from rlsys.jsonl import encode, format_value, kind_of, read_as
from rlsys.message_keys import refuse_other_call_keys, refuse_other_keys
from rlsys.types import (
    EpisodeEnd,
    Failure,
    Finding,
    Floats,
    Group,
    Message,
    Reward,
    SampleBegin,
    Task,
    ToolCall,
    Trajectory,
)

ROLES = ("assistant", "user", "tool", "system")
# Left out of a line where they say nothing.
OPTIONAL = frozenset(
    ("inline", "calls", "tool", "call_id", "problem", "ended", "reward", "parts", "correct", "judgements", "failure")
    + ("token_ids", "tokenizer", "samples")
    + ("metrics", "state", "seconds", "retried", "trace", "logprobs", "token_advantages", "findings")
    + ("message", "start", "end")
    + ("turns", "after", "begins")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One training sample as it was sampled: token_ids[start:end] of each span are the policy's own."""

    token_ids: tuple[int, ...]  # [L]
    sampled: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord:
    """A rule of the reward that fired, and what it adds to a part of it."""

    message: int | None = None  # of `prompt` and `messages` together; None where it fired on something absent
    start: int | None = None  # characters start:end of it
    end: int | None = None
    part: str
    rule: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """Where a message of the model stands in the tree of its episode."""

    number: int  # in the order of sampling, from 0
    after: int | None = None  # number of the one that it continues; None: it begins a conversation
    begins: SampleBegin | None = None  # where it starts a training sample


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRecord:
    """One trajectory as files have it: a field is a key."""

    task: Mapping[str, Any]  # what the data had, and "task_id", "question", "answers"
    sequence: int
    sibling: int
    attempt: int = 0  # of its ticket
    worker: str = ""
    prompt: tuple[Message, ...]
    messages: tuple[Message, ...]  # after the prompt
    end: EpisodeEnd
    ended: EpisodeEnd | None = None  # how the conversation ended, where only its scoring failed
    truncated: bool
    reward: float | None = None  # None: `failure` says why
    parts: Mapping[str, float] = field(default_factory=dict)
    correct: bool | None = None  # the verdict of a grader or a judge, where one was asked
    judgements: tuple[str, ...] = ()  # what a judge wrote of each message of the model, where one was asked
    failure: Failure | None = None
    retried: tuple[Failure, ...] = ()  # what broke before, after which the episode was played again
    advantage: float | None = None  # None where the group was not trained
    turns: tuple[TurnRecord, ...] = ()  # of `messages`, where they are several training samples
    tokenizer: str = ""  # of `samples`
    samples: tuple[Tokens, ...] = ()
    num_tokens: int | None  # None where a person wrote it: nothing was sampled
    token_ids: tuple[tuple[int, ...], ...] = ()  # by turn; none where `samples` has them
    logprobs: tuple[str, ...] = ()  # by turn, of its tokens: `pack_floats`
    token_advantages: tuple[str, ...] = ()  # the same, where the algorithm has one for each token
    findings: tuple[FindingRecord, ...] = ()  # of the reward, where it tells
    weight_versions: tuple[tuple[tuple[int, int, int], ...], ...]  # by turn: (version, from token, to token)
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the environment
    state: Mapping[str, Any] | None = None  # what the environment knew at the end, where it tells
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """All that was played of one task."""

    sequence: int
    task_id: str
    trajectories: tuple[TrajectoryRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """The best and the worst answer to one prompt."""

    task_id: str
    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    chosen_reward: float
    rejected_reward: float
    tokenizer: str
    chosen_samples: tuple[Tokens, ...]
    rejected_samples: tuple[Tokens, ...]
    chosen_truncated: bool
    rejected_truncated: bool


Record = TrajectoryRecord | GroupRecord | PairRecord


def make_record(
    trajectory: Trajectory,
    group: Group,
    *,
    advantage: float | None = None,
    tokenizer: str = "",
    samples: tuple[Tokens, ...] = (),
    logprobs: bool = False,
    token_advantages: Sequence[Floats] = (),
) -> TrajectoryRecord:
    """logprobs: whether those of the sampled tokens are kept. token_advantages: by turn, where they are known."""
    task, reward, start = trajectory.task, trajectory.reward, trajectory.num_prompt
    outputs, timings = [turn.completion for turn in trajectory.turns], trajectory.timings
    seconds = {"generate": timings.generate_s, "tool": timings.tool_s, "score": timings.score_s}
    graded = reward if isinstance(reward, Reward) else None
    return TrajectoryRecord(
        task={**task.record, "task_id": task.task_id, "question": task.question, "answers": list(task.answers)},
        sequence=group.ticket.sequence,
        sibling=trajectory.sibling,
        attempt=group.ticket.attempt,
        worker=group.worker,
        prompt=trajectory.messages[:start],
        messages=trajectory.messages[start:],
        end=trajectory.end,
        ended=trajectory.ended,
        truncated=trajectory.truncated,
        reward=graded.value if graded else None,
        parts=graded.parts if graded else {},
        correct=graded.correct if graded else None,
        judgements=(graded.judgements or ()) if graded else (),
        failure=reward if isinstance(reward, Failure) else None,
        retried=trajectory.retried,
        advantage=advantage,
        turns=_turn_records(trajectory),
        tokenizer=tokenizer if samples else "",
        samples=samples,
        num_tokens=trajectory.num_sampled,
        token_ids=() if samples else tuple(tuple(completion.token_ids.tolist()) for completion in outputs),
        logprobs=tuple(pack_floats(completion.logprobs) for completion in outputs) if logprobs else (),
        token_advantages=tuple(map(pack_floats, token_advantages)),
        findings=tuple(_finding_record(finding, start) for finding in graded.findings) if graded else (),
        weight_versions=tuple(tuple((s.version, s.start, s.end) for s in completion.spans) for completion in outputs),
        metrics=trajectory.metrics,
        state=trajectory.state,
        seconds={name: round(value, 4) for name, value in seconds.items()},
    )


def _turn_records(trajectory: Trajectory) -> tuple[TurnRecord, ...]:
    if not any(turn.begins for turn in trajectory.turns[1:]):
        return ()
    return tuple(TurnRecord(number=t.number, after=t.after, begins=t.begins) for t in trajectory.turns)


def _finding_record(finding: Finding, start: int) -> FindingRecord:
    """start: how many messages the prompt has."""
    rule, value, span = str(finding.rule), float(finding.value), finding.span
    if span is None:
        return FindingRecord(part=str(finding.part), rule=rule, value=value)
    return FindingRecord(
        message=start + span.message, start=span.start, end=span.end, part=str(finding.part), rule=rule, value=value
    )


def pack_floats(values: Floats) -> str:
    """Little-endian float16 in base64: 2.7 bytes a value, three digits of it. Below -65504 it is -inf."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(values, "<f2").tobytes()).decode("ascii")


def unpack_floats(text: str) -> Floats:
    """[L], as float32. Raises ValueError for what `pack_floats` has not written."""
    return np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float32)


def to_json(record: Record) -> dict[str, Any]:
    written: dict[str, Any] = encode(record, OPTIONAL)
    return written


def read_group(values: Mapping[str, Any], where: str) -> GroupRecord:
    """The inverse of `to_json`, also of lines that earlier versions wrote. Raises BadInput."""
    missing = 'no "sequence" with its "trajectories": not a file that rlsys generate has written'
    group = read_as(GroupRecord, values, where, missing)
    if type(group.sequence) is not int:
        raise BadInput(f'{missing} ("sequence" is {group.sequence!r})', where=where)
    return group


def read_trajectory(values: Mapping[str, Any], where: str) -> TrajectoryRecord:
    """The inverse of `to_json`. Raises BadInput."""
    problem = "not a trajectory that rlsys has written"
    record = read_as(TrajectoryRecord, values, where, problem)
    texts = [message.content if isinstance(message, Message) else None for message in record.prompt + record.messages]
    fits = {
        '"sequence" and "sibling" are no whole numbers': type(record.sequence) is int and type(record.sibling) is int,
        '"num_tokens" is no whole number': record.num_tokens is None or type(record.num_tokens) is int,
        '"task" is no object': isinstance(record.task, dict),
        '"prompt" and "messages" are no lists of messages': all(isinstance(text, str) for text in texts),
        '"judgements" is no list of texts': all(isinstance(judgement, str) for judgement in record.judgements),
    }
    for wrong, holds in fits.items():
        if not holds:
            raise BadInput(f"{problem} ({wrong})", where=where)
    return record


def score_json(result: Reward | Failure, line: int) -> dict[str, Any]:
    """What `rlsys score` writes about input line `line`, counted from 1."""
    if isinstance(result, Failure):
        return {"status": "failure", "kind": str(result.kind), "line": line, "detail": result.detail}
    streams = {stream.name: list(stream.values) for stream in result.streams}
    return {"status": "scored", "reward": result.value, "parts": dict(result.parts), "token_rewards": streams}


def task_of(record: Mapping[str, Any]) -> Task:
    """The task of a trajectory, from what its line has of it."""
    question, answers = str(record.get("question", "")), tuple(map(str, record.get("answers", ())))
    return Task(task_id=str(record.get("task_id")), question=question, answers=answers, record=record)


# -- what files of ours and lines from elsewhere both hold -----------------------------------------------------------


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def read_messages(values: Sequence[Any], where: str, roles: Sequence[str]) -> tuple[Message, ...]:
    messages = []
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise BadInput(f"{where}[{index}] is {kind_of(value)}", expected="an object")
        role, content = value.get("role"), value.get("content")
        if not isinstance(role, str) or role not in roles:
            without = "" if "system" in roles else ": no prompt"
            raise BadInput(
                f"{where}[{index}].role is {format_value(role)}", expected=f"one of {', '.join(roles)}{without}"
            )
        refuse_other_keys(value, f"{where}[{index}]")
        calls = _read_calls(value, f"{where}[{index}]")
        if content is None and calls:
            content = ""
        if not isinstance(content, str):
            raise BadInput(f"{where}[{index}].content is {kind_of(content)}", expected="a text")
        tool, call_id = (_first_text(value, *keys) for keys in (("tool", "name"), ("call_id", "tool_call_id")))
        origin = {"tool": tool, "call_id": call_id} if role == "tool" else {}
        messages.append(Message(role=role, content=content, inline=value.get("inline") is True, calls=calls, **origin))
    return tuple(messages)


def _read_calls(message: Mapping[str, Any], where: str) -> tuple[ToolCall, ...]:
    """Ours, or OpenAI's "tool_calls", whose arguments are an object or its JSON text."""
    raw_calls: Any = message.get("tool_calls") or message.get("calls") or []
    calls = []
    for call in raw_calls if isinstance(raw_calls, list) else (raw_calls,):
        inner = (call.get("function") or call) if isinstance(call, dict) else None
        name, arguments = (inner.get("name"), inner.get("arguments", {})) if isinstance(inner, dict) else (None, None)
        if isinstance(arguments, str):
            with suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        elif message.get("tool_calls"):
            arguments = _without_nulls(arguments)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise BadInput("is no list of calls", where=where, key='"tool_calls"', expected='"name" and "arguments"')
        for part in (call, inner or {}):
            refuse_other_call_keys(part, where)
        calls.append(ToolCall(name=name, arguments=arguments, call_id=_first_text(call, "id", "call_id")))
    return tuple(calls)


def call_json(call: ToolCall, *, texts: bool = True) -> dict[str, Any]:
    """As OpenAI's "tool_calls" have it. texts: with its arguments as JSON text, not as an object."""
    arguments = json.dumps(call.arguments, ensure_ascii=False) if texts else dict(call.arguments)
    return {"type": "function", "id": call.call_id, "function": {"name": call.name, "arguments": arguments}}


def _first_text(value: Mapping[str, Any], *keys: str) -> str:
    """The first that is there, as a text: some number their calls."""
    return next((str(value[key]) for key in keys if isinstance(value.get(key), str | int) and value[key] != ""), "")


def _without_nulls(value: Any) -> Any:
    """Files of columns give the arguments of a call the names of all other calls', with null."""
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return [_without_nulls(child) for child in value] if isinstance(value, list) else value


def read_samples(record: Mapping[str, Any], key: str, where: str) -> tuple[Tokens, ...]:
    value = record.get(key, [])
    if not isinstance(value, list) or not all(isinstance(sample, dict) for sample in value):
        raise BadInput("is no list of objects", where=where, key=f'"{key}"')
    return tuple(_read_sample(sample, f'{where}: "{key}"[{index}]') for index, sample in enumerate(value))


def _read_sample(value: dict[str, Any], where: str) -> Tokens:
    ids, spans = value.get("token_ids"), value.get("sampled")
    if not isinstance(ids, list) or not are_counts(ids):
        raise BadInput("is no list of whole numbers", where=where, key='"token_ids"')
    if not isinstance(spans, list) or not spans:
        raise BadInput("is no list of [start, end]", where=where, key='"sampled"')
    last = 1  # nothing predicts the first token
    for span in spans:
        if not are_counts(span) or len(span) != 2 or not last <= span[0] < span[1] <= len(ids):
            raise BadInput(
                f"holds {span!r}", where=where, key='"sampled"', expected=f"ascending [start, end] within 1:{len(ids)}"
            )
        last = span[1]
    return Tokens(token_ids=tuple(ids), sampled=tuple((start, end) for start, end in spans))
