"""Multiple choice (Knowledge Crosswords in arXiv 2506.00845): 1 for the right letter, read off the text by rules.

The paper lets a language model say which letter a response ends in; these rules are the same for everyone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.transcript import Piece, answer_key, answer_pieces, last_span_between, text_of_span
from envs.text.choice import find_final_letter, find_named
from rlsys.errors import BadInput
from rlsys.types import Task, Transcript


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceRewardConfig:
    name: str = "multiple_choice"


class MultipleChoiceReward(SumOfFindings):
    """`correct`: 1.0 when the letter that the model ends on is one of the task's answers."""

    parts = ("correct",)
    solved_by: ClassVar[Mapping[str, float]] = {"correct": RIGHT}

    def __init__(self, config: MultipleChoiceRewardConfig) -> None:
        pass

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        options = _options(transcript.task)
        golds = answer_key(transcript.task)
        for gold in golds:
            if gold not in options:
                labels = ", ".join(options)
                raise BadInput(f"answer {gold!r}", where=f"task {transcript.task.task_id}", expected=f"one of {labels}")
        letter, span = find_choice(answer_pieces(transcript), options)
        rule = f"chose {letter}" if letter else "no choice could be read"
        right = letter in golds if transcript.correct is None else transcript.correct
        return (make_finding("correct", rule, float(right), transcript.messages, span),)


def find_choice(pieces: Sequence[Piece], options: Mapping[str, str]) -> tuple[str | None, Span | None]:
    """The letter that a response ends on and where it stands.

    The last answer tag decides where there is one, and else the last message, as `find_final_letter` reads it. pieces:
    without thoughts.
    """
    tag = last_span_between(pieces, "<answer>", "</answer>")
    if tag is not None:
        return find_named(text_of_span(pieces, tag), options), tag
    for piece in reversed(pieces):
        if piece.text.strip():
            letter, at = find_final_letter(piece.text, options)
            return letter, Span(message=piece.message, start=at[0], end=at[1]) if at is not None else None
    return None, None


def _options(task: Task) -> Mapping[str, str]:
    """Letters with their texts. Raises BadInput."""
    options = task.record.get("options")
    if not isinstance(options, Mapping) or not options:
        raise BadInput(
            "is missing or empty", where=f"task {task.task_id}", key='"options"', expected='{"A": ..., "B": ...}'
        )
    for letter, text in options.items():
        if not (isinstance(letter, str) and len(letter) == 1 and "A" <= letter <= "Z" and isinstance(text, str)):
            raise BadInput(f"option {letter!r}", where=f"task {task.task_id}", expected="a capital letter with a text")
    return options
