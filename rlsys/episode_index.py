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
    task, failure, metrics = (_mapping_or_empty(line.get(key)) for key in ("task", "failure", "metrics"))
    parts, seconds = (_finite_numbers(line.get(key)) for key in ("parts", "seconds"))
    messages, versions = _list_or_empty(line.get("messages")), _integers(line.get("weight_versions"))
    return {
        "file": place.file,
        "offset": place.offset,
        "length": place.length,
        "step": place.step,
        "stage": place.stage,
        "play": place.play,
        "when": place.when,
        "sequence": _integer_or_none(line.get("sequence")),
        "sibling": _integer_or_none(line.get("sibling")),
        "attempt": _integer_or_none(line.get("attempt")),
        "task_id": _text_or_none(task.get("task_id")),
        "reward": _finite_or_none(line.get("reward")),
        "parts": parts,
        "correct": _is_correct(line.get("correct"), parts, solved_by),
        "advantage": _finite_or_none(line.get("advantage")),
        "tokens": _integer_or_none(line.get("num_tokens")),
        "turns": sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages),
        "calls": int(_finite_or_none(metrics.get(CALLS)) or 0),
        "end": _text_or_none(line.get("end")),
        "truncated": line.get("truncated") is True,
        "failure": _text_or_none(failure.get("kind")),
        "worker": _text_or_none(line.get("worker")),
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


def _integers(value: Any) -> list[int]:
    spans = [_list_or_empty(span) for turn in _list_or_empty(value) for span in _list_or_empty(turn)]
    return [span[0] for span in spans if span and type(span[0]) is int]


def _finite_numbers(value: Any) -> dict[str, float]:
    numbers = {str(key): _finite_or_none(raw) for key, raw in _mapping_or_empty(value).items()}
    return {key: number for key, number in numbers.items() if number is not None}


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_or_empty(value: Any) -> list[Any]:
    """A tuple is what JSON has a list for, before it was written."""
    return list(value) if isinstance(value, list | tuple) else []


def _text_or_none(value: Any) -> str | None:
    return str(value) if isinstance(value, str) and value else None


def _integer_or_none(value: Any) -> int | None:
    return value if type(value) is int else None


def _finite_or_none(value: Any) -> float | None:
    """Strict JSON has no word for what is not finite, and a whole number may be larger than any float."""
    return value if type(value) in (int, float) and abs(value) <= sys.float_info.max else None
