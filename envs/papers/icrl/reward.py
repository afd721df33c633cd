"""ICRL (equations 7 and 8, table 2): a right answer and a format score with six penalties that add up.

With `tool: code` (section 4.3, which prints no reward) the answer is boxed and the maths verifier decides.

`docs/rewards/icrl.md` has the constants and what differs between paper and repository.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.papers.icrl.protocol import INFORMATION
from envs.protocols.retool import INTERPRETER
from envs.rewards import RIGHT
from envs.rewards.asks import Grading
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.maths.compare import decide
from envs.rewards.qa import exact_match
from envs.rewards.transcript import (
    Piece,
    answer_key,
    count_tag,
    first_span,
    last_span_between,
    lower_ascii,
    model_pieces,
)
from envs.text.words import last_boxed
from rlsys.errors import BadInput, require
from rlsys.types import Transcript

NO_ANSWER, UNBALANCED_ANSWER, EMPTY_ANSWER = 0.5, 0.2, 0.2
NO_THINK, UNBALANCED_THINK = 0.15, 0.1
NO_CALL = 0.1


@dataclass(frozen=True, kw_only=True)
class IcrlRewardConfig:
    name: str = "icrl"
    alpha: float = 0.8
    """Weight of a right answer, from 0 to 1. The format score has the weight 1 - alpha."""
    tool: Literal["search", "code"] = "search"
    """Tool that the response calls, which sets its tag and the comparison of answers. search: exact match. code: the
    maths verifier on a boxed answer."""
    clamp: bool = True
    """Whether a format score below 0 counts as 0. true: as in the authors' code. false: as the paper prints it."""

    def __post_init__(self) -> None:
        require(0 <= self.alpha <= 1, "reward.alpha", self.alpha, "between 0 and 1")


class IcrlReward(SumOfFindings):
    """`accuracy` + `format` + `clamp`, of the response only; tags in any case.

    The right answer without a search: Reward(value=0.98, parts={"accuracy": 0.8, "format": 0.18, "clamp": 0.0}).
    """

    parts = ("accuracy", "format", "clamp")
    solved_by: ClassVar[Mapping[str, float]] = {"accuracy": RIGHT}

    def __init__(self, config: IcrlRewardConfig) -> None:
        self._alpha = config.alpha
        self._clamp = config.clamp
        self._tool = config.tool
        self.inline = INTERPRETER if config.tool == "code" else INFORMATION

    def given(self, transcript: Transcript) -> str:
        """What stands in the last answer tag; of code, in its last box."""
        text = self._answer(
            transcript, last_span_between(lower_ascii(model_pieces(transcript)), "<answer>", "</answer>")
        )
        return (last_boxed(text) or "") if self._tool == "code" else text

    def _answer(self, transcript: Transcript, span: Span | None) -> str:
        return "" if span is None else transcript.messages[span.message].content[span.start : span.end].strip()

    def grading(self, transcript: Transcript) -> Grading | None:
        """What a grader has to decide before the reward can be given; None when nothing is left open."""
        if self._tool == "search" or transcript.correct is not None:
            return None
        text, golds = self.given(transcript), answer_key(transcript.task)
        is_open = text and decide(text, golds, transcript.task.question) is None
        return Grading(given=text, golds=golds) if is_open else None

    def _right(self, transcript: Transcript) -> bool:
        golds, text = answer_key(transcript.task), self.given(transcript)
        if transcript.correct is not None or not text:
            return bool(transcript.correct)
        verdict = decide(text, golds, transcript.task.question) if self._tool == "code" else exact_match(text, golds)
        if verdict is None:
            raise BadInput(
                "the answer needs a grader", where=f"task {transcript.task.task_id}", expected="`correct` to be given"
            )
        return verdict

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        pieces = lower_ascii(model_pieces(transcript))
        weight = 1 - self._alpha
        answer_span, right = last_span_between(pieces, "<answer>", "</answer>"), self._right(transcript)
        rule = ("" if right else "no ") + ("exact match" if self._tool == "search" else "right box")
        findings = [make_finding("accuracy", rule, self._alpha * right, transcript.messages, answer_span)]
        if not any(piece.text for piece in pieces):
            return (*findings, Finding(part="format", rule="empty response: no format score"))
        findings.append(Finding(part="format", rule="format score before penalties", value=weight))
        score = 1.0
        for rule, penalty, span in _violations(pieces, self._tool, answer_span, self._answer(transcript, answer_span)):
            findings.append(make_finding("format", rule, -weight * penalty, transcript.messages, span))
            score -= penalty
        if self._clamp and score < 0:
            below = math.fsum(finding.value for finding in findings[1:])
            findings.append(Finding(part="clamp", rule=f"format score {score:.2f} counts as 0", value=-below))
        return tuple(findings)


def _violations(
    pieces: list[Piece], tool: str, span: Span | None, answer: str
) -> Iterator[tuple[str, float, Span | None]]:
    """(rule, penalty, where) of each row of table 2 that is violated."""
    for tag, missing, unbalanced in (("answer", NO_ANSWER, UNBALANCED_ANSWER), ("think", NO_THINK, UNBALANCED_THINK)):
        opened, closed = count_tag(pieces, f"<{tag}>"), count_tag(pieces, f"</{tag}>")
        where = first_span(pieces, f"<{tag}>") or first_span(pieces, f"</{tag}>")
        if not (opened and closed):
            yield f"no <{tag}> or no </{tag}>", missing, where
        if opened != closed:
            yield f"{opened} <{tag}> and {closed} </{tag}>: not balanced", unbalanced, where
    if not (count_tag(pieces, f"<{tool}>") or count_tag(pieces, f"</{tool}>")):
        yield f"no <{tool}>", NO_CALL, None
    if span is not None and not answer:
        yield "empty answer", EMPTY_ANSWER, span
