"""A reward with what it found: computed once where it is the sum, and never worth the reward itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.rewards.findings import Finding, Span, SumOfFindings, score_and_explain
from rlsys.types import Reward, Transcript
from tests.makers.made import TASK

SAID = Transcript(task=TASK, messages=())


class Sum(SumOfFindings):
    parts = ("correct", "format")

    def __init__(self) -> None:
        self.asked = 0

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        self.asked += 1
        return (Finding(part="correct", rule="equal", value=1.0), Finding(part="format", rule="box", value=0.5))


class Broken(Sum):
    def __call__(self, transcript: Transcript) -> Reward:
        return Reward(value=2.0, parts={"own": 2.0})

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        raise ZeroDivisionError


class Odd(Broken):
    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        return ("no finding", Finding(part="own", rule="x"))  # type: ignore[return-value]


class Told(Broken):
    """It explains itself, and is not asked again."""

    def __call__(self, transcript: Transcript) -> Reward:
        return Reward(value=2.0, parts={"own": 2.0}, findings=(Finding(part="own", rule="y"),))


class Damaged(Broken):
    def __init__(self, found: Finding) -> None:
        self.found = found

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        return (self.found,)


@pytest.mark.parametrize("fields", [{"value": None}, {"value": float("nan")}, {"value": 1.0, "span": (0, 1, 2)}])
def test_a_finding_that_no_file_can_hold_is_none(fields: dict[str, Any]) -> None:
    scored = score_and_explain(Damaged(Finding(part="own", rule="x", **fields)), SAID)
    assert scored == Reward(value=2.0, parts={"own": 2.0}) and scored.findings == ()


def test_numbers_of_a_library_become_plain_ones() -> None:
    span = Span(message=np.int64(0), start=np.int64(1), end=np.int64(2))  # type: ignore[arg-type]
    (finding,) = score_and_explain(
        Damaged(Finding(part="own", rule="x", value=np.float32(0.5), span=span)), SAID
    ).findings
    assert (type(finding.value), finding.span and type(finding.span.start)) == (float, int)


def test_a_sum_of_findings_is_computed_once() -> None:
    reward = Sum()
    scored = score_and_explain(reward, SAID)
    assert reward.asked == 1 and scored == reward(SAID)
    assert [finding.rule for finding in scored.findings] == ["equal", "box"]


def test_an_explanation_that_breaks_costs_nothing_but_itself() -> None:
    assert score_and_explain(Broken(), SAID) == Reward(value=2.0, parts={"own": 2.0})
    assert score_and_explain(Broken(), SAID).findings == ()
    assert [finding.rule for finding in score_and_explain(Odd(), SAID).findings] == ["x"]
    assert [finding.rule for finding in score_and_explain(Told(), SAID).findings] == ["y"]
    assert score_and_explain(lambda transcript: Reward(value=1.0, parts={}), SAID).findings == ()
