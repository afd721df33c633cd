"""Blocksworld: a plan that can be carried out and meets the goal, or the right verdict on a given plan.

The executor decides (`execute.py`), where Graph-RL asked a language model. The constants and their
sources are in `docs/rewards/blocksworld.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from envs.papers.graph_rl.blocks.execute import execute, unmet_facts
from envs.papers.graph_rl.blocks.read import INVALID, VALID, Problem, problem_of
from envs.papers.graph_rl.blocks.words import PLAN_END, fact_words, facts_words, read_plan, read_verdict, reason_words
from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.transcript import Piece, answer_pieces
from rlsys.errors import require_bounds
from rlsys.types import Message, Transcript


@dataclass(frozen=True, kw_only=True)
class BlocksworldRewardConfig:
    name: str = "blocksworld"
    valid: float = 1.0
    """Reward for a plan whose every step can be carried out and that meets the goal."""
    verdict: float = 1.0
    """Reward for the right verdict, valid or invalid, on a given plan."""
    step_credit: float = 0.0
    """Partial credit for a failing plan, times the share of its steps before the first that cannot be carried out."""
    goal_credit: float = 0.0
    """Partial credit for a failing plan, times the share of the goal's conditions, open at the start, that hold at the
    end."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "a finite number", "valid", "verdict", "step_credit", "goal_credit")


class BlocksworldReward(SumOfFindings):
    """`valid` + `steps` + `goal` for a plan, `verdict` for a verdict; of the last message that the model wrote.

    A right plan: Reward(value=1.0, parts={"valid": 1.0, "steps": 0.0, "goal": 0.0, "verdict": 0.0}).
    """

    parts = ("valid", "steps", "goal", "verdict")
    solved_by: ClassVar[Mapping[str, float]] = {"valid": RIGHT, "verdict": RIGHT}

    def __init__(self, config: BlocksworldRewardConfig) -> None:
        self._config = config

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        problem = problem_of(transcript.task)
        pieces = answer_pieces(transcript)
        last = pieces[-1] if pieces else Piece(0, "")
        if transcript.correct is not None:  # said by who asks for the score: nothing is executed
            part, value = ("valid", self._config.valid) if problem.plan is None else ("verdict", self._config.verdict)
            rule = "given as right" if transcript.correct else "given as wrong"
            return (Finding(part=part, rule=rule, value=value * transcript.correct),)
        if problem.plan is not None:
            return (self._verdict(problem, last, transcript),)
        if transcript.truncated and PLAN_END not in last.text:
            return (Finding(part="valid", rule=f"cut off before {PLAN_END}"),)
        return self._plan(problem, last, transcript.messages)

    def _verdict(self, problem: Problem, last: Piece, transcript: Transcript) -> Finding:
        reading = None if transcript.truncated else read_verdict(last.text)
        if reading is None:
            rule = "cut off" if transcript.truncated else f"neither {VALID} nor {INVALID}"
            return Finding(part="verdict", rule=rule)
        verdict, (start, end) = reading
        truth = VALID if problem.valid else INVALID
        rule = f"the plan is {truth}" + ("" if verdict == problem.valid else f", not {VALID if verdict else INVALID}")
        value = self._config.verdict * (verdict == problem.valid)
        return make_finding(
            "verdict", rule, value, transcript.messages, Span(message=last.message, start=start, end=end)
        )

    def _plan(self, problem: Problem, last: Piece, messages: tuple[Message, ...]) -> tuple[Finding, ...]:
        plan = read_plan(last.text)
        if plan.problem is not None:
            start, end = plan.problem_span or (0, 0)
            span = Span(message=last.message, start=start, end=end) if messages else None
            return (make_finding("valid", plan.problem, 0.0, messages, span),)
        execution = execute(problem.state, plan.actions)
        unmet = unmet_facts(execution.final, problem.goal)
        plan_span = Span(message=last.message, start=plan.spans[0][0], end=plan.spans[-1][1])
        if execution.failed is None and not unmet:
            return (
                make_finding(
                    "valid", "every step can be done and the goal is met", self._config.valid, messages, plan_span
                ),
            )
        num_done, rule, where = len(plan.actions), f"the goal is not met: {facts_words(unmet)}", plan_span
        if execution.failed is not None:
            num_done = execution.failed
            rule = " ".join(reason_words(plan.actions, execution).split())
            where = Span(message=last.message, start=plan.spans[num_done][0], end=plan.spans[num_done][1])
        findings = [make_finding("valid", rule, 0.0, messages, where)]
        if self._config.step_credit:
            share = num_done / len(plan.actions)
            rule = f"{num_done} of {len(plan.actions)} steps can be done"
            findings.append(make_finding("steps", rule, self._config.step_credit * share, messages, plan_span))
        if self._config.goal_credit:
            open_at_start = unmet_facts(problem.state, problem.goal)
            met = [fact for fact in open_at_start if fact not in unmet]
            share = len(met) / len(open_at_start) if open_at_start else 0.0
            rule = f"{len(met)} of {len(open_at_start)} open goal conditions met"
            rule += f": {', '.join(fact_words(fact) for fact in met)}" if met else ""
            findings.append(make_finding("goal", rule, self._config.goal_credit * share, messages, plan_span))
        return tuple(findings)
