"""Right or wrong, and a little for writing the answer as asked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Optional

from envs.protocols.record import ANSWER_CLOSE, ANSWER_OPEN, has_one_answer
from envs.rewards import RIGHT
from envs.rewards.findings import Finding, SumOfFindings, make_finding
from envs.rewards.length import check_overlong, overlong_findings, overlong_parts
from envs.rewards.transcript import Piece, answer_key, answer_pieces, last_span_between
from envs.text.amounts import read_amount, same_amount, unwrap
from rlsys.errors import require, require_bounds
from rlsys.types import Span, Transcript

MARKS = " \t\n.!*\"'`"  # around an answer they say nothing
NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:/\d+)?(?:\s?\\?%)?")
FACTORIAL = re.compile(r"(?:[\d)]|\b[a-z])!")  # `5!` is not an exclaimed five


@dataclass(frozen=True, kw_only=True)
class AnswerRewardConfig:
    name: str = "answer"
    reads: Literal["tag", "last_number"] = "tag"
    """Place of the answer in the last message. tag: in answer tags. last_number: the last number of the message, for a
    pretrained model that has not yet learned a form (with env.style=free)."""
    correct: float = 1.0
    """Reward for an answer equal to one of the task's answers, as a number or else as text."""
    format: float = 0.1
    """Reward for exactly one answer tag in the last message of an episode that was not cut off; of last_number, for a
    number in it."""
    max_length: Optional[int] = None
    """Length limit of `overlong_buffer` in tokens that the policy generates."""
    overlong_buffer: Optional[int] = None
    """Length of the buffer before `max_length`, in tokens, over which DAPO's soft overlong penalty grows linearly.
    null: no overlong penalty."""
    overlong_penalty: float = -1.0
    """Overlong penalty from `max_length` tokens on, 0 or less."""

    @property
    def length_limit(self) -> int | None:
        return self.max_length

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "a finite number", "correct", "format")
        check_overlong(self)
        used = self.max_length is None or self.overlong_buffer is not None
        require(used, "reward.max_length", self.max_length, "null without reward.overlong_buffer")


class AnswerReward(SumOfFindings):
    """`correct` + `format`, from the last message that the model wrote; what the environment wrote never counts, and
    nor does what stands in a thought.
    With `overlong_buffer` also `overlong`, 0 or less.

    The answer 24.0 to a task with the answer 24: Reward(value=1.1, parts={"correct": 1.0, "format": 0.1}).
    """

    solved_by: ClassVar[Mapping[str, float]] = {"correct": RIGHT}

    def __init__(self, config: AnswerRewardConfig) -> None:
        self._config = config
        self.parts = ("correct", "format", *overlong_parts(config))
        self.uses_tokens = config.overlong_buffer is not None

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        golds = answer_key(transcript.task)
        last = answer_pieces(transcript)[-1:]
        text, tagged = last[0].text if last else "", self._config.reads == "tag"
        span = last_span_between(last, ANSWER_OPEN, ANSWER_CLOSE) if tagged else last_number(last)
        right = span is not None and same_answer(text[span.start : span.end].strip(), golds)
        if transcript.correct is not None:
            right = transcript.correct
        formatted = (has_one_answer(text) if tagged else span is not None) and not transcript.truncated
        correct, form = self._config.correct * right, self._config.format * formatted
        form_of = "answer tag" if tagged else "number"
        wrong = f"no {form_of} in the last message" if span is None else "wrong answer"
        absent = "not exactly one answer tag in the last message" if tagged else "no number in the last message"
        broken = "cut off" if transcript.truncated else absent
        return (
            make_finding("correct", "right answer" if right else wrong, correct, transcript.messages, span),
            make_finding("format", f"one {form_of}" if formatted else broken, form, transcript.messages, span),
            *overlong_findings(self._config, transcript),
        )


def last_number(pieces: Sequence[Piece]) -> Span | None:
    """Where the last number of these texts stands, with its sign, thousands and decimals."""
    for piece in reversed(pieces):
        matches = list(NUMBER.finditer(piece.text))
        if matches:
            return Span(message=piece.message, start=matches[-1].start(), end=matches[-1].end())
    return None


def same_answer(answer: str, answers: Sequence[str]) -> bool:
    """Whether `answer` equals one of `answers`: exactly as amounts (`$1,080.00` is `1080`), else as text in any case,
    without the marks around it (`Yes.` is `yes`)."""
    amount = read_amount(answer)
    for gold in answers:
        gold_amount = read_amount(gold) if amount else None
        if same_amount(amount, gold_amount) if amount and gold_amount else _normalize(answer) == _normalize(gold):
            return True
    return False


def _normalize(text: str) -> str:
    text = " ".join(unicodedata.normalize("NFC", unwrap(text)).split()).casefold()
    marks = MARKS.replace("!", "") if FACTORIAL.search(text) else MARKS
    return text.strip(marks) or text
