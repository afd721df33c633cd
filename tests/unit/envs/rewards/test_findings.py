"""A reward with what it found: computed once where it is the sum, and never worth the reward itself."""

from __future__ import annotations

from envs.rewards.findings import Finding, SumOfFindings, score_and_explain
from rlsys.types import Reward, Transcript
from tests.made import TASK

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


def test_a_sum_of_findings_is_computed_once() -> None:
    reward = Sum()
    scored = score_and_explain(reward, SAID)
    assert reward.asked == 1 and scored == reward(SAID)
    assert [each.rule for each in scored.findings] == ["equal", "box"]


def test_an_explanation_that_breaks_costs_nothing_but_itself() -> None:
    assert score_and_explain(Broken(), SAID) == Reward(value=2.0, parts={"own": 2.0})
    assert score_and_explain(Broken(), SAID).findings == ()
    assert [each.rule for each in score_and_explain(Odd(), SAID).findings] == ["x"]
    assert score_and_explain(lambda transcript: Reward(value=1.0, parts={}), SAID).findings == ()
