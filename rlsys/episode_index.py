"""The row of `trajectories/index.jsonl` that stands for one episode: what lists, filters and counts need of it.

A run writes the rows as it writes the episodes; a reader that finds none or old ones makes the same ones.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlsys.summaries import CALLS

INDEX = "index.jsonl"
SOLVED_BY: Mapping[str, float] = {"correct": 0.0}  # of a reward that is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePlace:
    """Where an episode is written, and what it was played for."""

    file: str  # the name of a file in trajectories/
    offset: int  # bytes before its line, in the decompressed file
    length: int  # bytes of its line, with the line break
    step: int
    stage: str
    play: str | None = None  # of an evaluation: "greedy", "hotpotqa/greedy"
    when: str | None = None  # of an evaluation: "before", "during", "after", "eval"


def index_row(
    line: Mapping[str, Any], place: EpisodePlace, solved_by: Mapping[str, float] = SOLVED_BY
) -> dict[str, Any]:
    """line: a trajectory in the form of `rlsys.records.to_json`. What has another shape in it is null in the row.

    solved_by: parts of the reward, and what one of them must exceed for the task to count as solved.
    """
    task, failure, metrics = (_mapping(line.get(key)) for key in ("task", "failure", "metrics"))
    parts, seconds = (_numbers(line.get(key)) for key in ("parts", "seconds"))
    messages, versions = _list(line.get("messages")), _versions(line.get("weight_versions"))
    return {
        "file": place.file,
        "offset": place.offset,
        "length": place.length,
        "step": place.step,
        "stage": place.stage,
        "play": place.play,
        "when": place.when,
        "sequence": _whole(line.get("sequence")),
        "sibling": _whole(line.get("sibling")),
        "attempt": _whole(line.get("attempt")),
        "task_id": _text(task.get("task_id")),
        "reward": _number(line.get("reward")),
        "parts": parts,
        "correct": _is_correct(line.get("correct"), parts, solved_by),
        "advantage": _number(line.get("advantage")),
        "tokens": _whole(line.get("num_tokens")),
        "turns": sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages),
        "calls": int(_number(metrics.get(CALLS)) or 0),
        "end": _text(line.get("end")),
        "truncated": line.get("truncated") is True,
        "failure": _text(failure.get("kind")),
        "worker": _text(line.get("worker")),
        "first_version": min(versions, default=None),
        "last_version": max(versions, default=None),
        "seconds": round(math.fsum(seconds.values()), 4),
        "packed": None,  # the writer of a compressed file knows: `rlsys.files.pack_lines`
    }


def _is_correct(verdict: Any, parts: Mapping[str, float], solved_by: Mapping[str, float]) -> bool | None:
    """The verdict of a grader or a judge, else the parts of the reward that pay for a right answer."""
    if isinstance(verdict, bool):
        return verdict
    thresholds = {part: least for part, least in solved_by.items() if part in parts}
    return any(parts[part] > least for part, least in thresholds.items()) if thresholds else None


def _versions(value: Any) -> list[int]:
    spans = [_list(span) for turn in _list(value) for span in _list(turn)]
    return [span[0] for span in spans if span and type(span[0]) is int]


def _numbers(value: Any) -> dict[str, float]:
    numbers = {str(key): _number(raw) for key, raw in _mapping(value).items()}
    return {key: number for key, number in numbers.items() if number is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    """A tuple is what JSON has a list for, before it was written."""
    return list(value) if isinstance(value, list | tuple) else []


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    """Strict JSON has no word for what is not finite, and a whole number may be larger than any float."""
    return value if type(value) in (int, float) and abs(value) <= sys.float_info.max else None
