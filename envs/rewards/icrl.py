"""ICRL (equations 7 and 8, table 2): exact match and a format score with six penalties that add up.

`docs/rewards/icrl.md` has the constants and what differs between paper and repository.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from envs.protocols.icrl import INFORMATION
from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, SumOfFindings, found
from envs.rewards.qa import exact_match
from envs.rewards.transcript import Piece, answers, count, first, last_pair, lowered, written
from rlsys.errors import require
from rlsys.types import Transcript

NO_ANSWER, UNBALANCED_ANSWER, EMPTY_ANSWER = 0.5, 0.2, 0.2
NO_THINK, UNBALANCED_THINK = 0.15, 0.1
NO_SEARCH = 0.1


@dataclass(frozen=True, kw_only=True)
class IcrlRewardConfig:
    name: str = "icrl"
    alpha: float = 0.8
    """Weight of the exact match; the format score has the rest."""
    clamp: bool = True
    """True, as the authors' code: a format score below 0 counts as 0. False, as the paper prints it."""

    def __post_init__(self) -> None:
        require(0 <= self.alpha <= 1, "reward.alpha", self.alpha, "between 0 and 1")


class IcrlReward(SumOfFindings):
    """`accuracy` + `format` + `clamp`, of the response only; tags in any case.

    The right answer without a search: Reward(value=0.98, parts={"accuracy": 0.8, "format": 0.18, "clamp": 0.0}).
    """

    parts = ("accuracy", "format", "clamp")
    solved_by: ClassVar[Mapping[str, float]] = {"accuracy": RIGHT}
    inline = INFORMATION

    def __init__(self, config: IcrlRewardConfig) -> None:
        self._alpha = config.alpha
        self._clamp = config.clamp

    def given(self, transcript: Transcript) -> str:
        """What stands in the last answer tag."""
        span = last_pair(lowered(written(transcript)), "<answer>", "</answer>")
        return "" if span is None else transcript.messages[span.message].content[span.start : span.end].strip()

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        golds = answers(transcript.task)
        pieces = lowered(written(transcript))
        weight = 1 - self._alpha
        given, text = last_pair(pieces, "<answer>", "</answer>"), self.given(transcript)
        right = bool(text) and exact_match(text, golds) if transcript.correct is None else transcript.correct
        rule = "exact match" if right else "no exact match"
        findings = [found("accuracy", rule, self._alpha * right, transcript.messages, given)]
        if not any(piece.text for piece in pieces):
            return (*findings, Finding(part="format", rule="empty response: no format score"))
        findings.append(Finding(part="format", rule="format score before penalties", value=weight))
        score = 1.0
        for rule, penalty, span in _violations(pieces, given, text):
            findings.append(found("format", rule, -weight * penalty, transcript.messages, span))
            score -= penalty
        if self._clamp and score < 0:
            below = math.fsum(finding.value for finding in findings[1:])
            findings.append(Finding(part="clamp", rule=f"format score {score:.2f} counts as 0", value=-below))
        return tuple(findings)


def _violations(pieces: list[Piece], given: Span | None, answer: str) -> Iterator[tuple[str, float, Span | None]]:
    """(rule, penalty, where) of each row of table 2 that is violated."""
    for tag, missing, unbalanced in (("answer", NO_ANSWER, UNBALANCED_ANSWER), ("think", NO_THINK, UNBALANCED_THINK)):
        opened, closed = count(pieces, f"<{tag}>"), count(pieces, f"</{tag}>")
        where = first(pieces, f"<{tag}>") or first(pieces, f"</{tag}>")
        if not (opened and closed):
            yield f"no <{tag}> or no </{tag}>", missing, where
        if opened != closed:
            yield f"{opened} <{tag}> and {closed} </{tag}>: not balanced", unbalanced, where
    if not (count(pieces, "<search>") or count(pieces, "</search>")):
        yield "no <search>", NO_SEARCH, None
    if given is not None and not answer:
        yield "empty answer", EMPTY_ANSWER, given
