"""The score that the environment's scorer gave an answer to a reasoning-gym problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envs.rewards import RIGHT, WHOLE
from envs.rewards.findings import Finding, SumOfFindings
from envs.rewards.transcript import model_pieces
from rlsys.errors import BadInput, require_bounds
from rlsys.types import Transcript


@dataclass(frozen=True, kw_only=True)
class ReasoningGymRewardConfig:
    name: str = "reasoning_gym"
    correct: float = 1.0
    """Reward for an answer to which the family's scorer gives 1."""
    partial: float = 0.0
    """Reward for any other answer, times its score of the family's scorer. Some scorers give 0.01 to 0.05, a few 0.1 to
    0.25, to any text."""
    format: float = 0.1
    """Reward for an answer written where it is asked for, in an episode that was not cut off."""

    def __post_init__(self) -> None:
        require_bounds(self, "reward.", "a finite number", "correct", "partial", "format")

    def env_problem(self, env: Any) -> str:
        """Why it cannot score the episodes of this environment."""
        supported = getattr(env, "name", "") == "reasoning_gym"
        return "" if supported else "only env.name=reasoning_gym has the scores that it pays"


class ReasoningGymReward(SumOfFindings):
    """`correct` + `partial` + `format`, from the score in the episode's final state.

    A right answer: Reward(value=1.1, parts={"correct": 1.0, "partial": 0.0, "format": 0.1}).
    """

    parts = ("correct", "partial", "format")
    solved_by: ClassVar[Mapping[str, float]] = {"correct": RIGHT}

    def __init__(self, config: ReasoningGymRewardConfig) -> None:
        self._config = config

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        if transcript.correct is not None:  # said by who asks for the score
            rule = "given as right" if transcript.correct else "given as wrong"
            return (Finding(part="correct", rule=rule, value=self._config.correct * transcript.correct),)
        score, how = score_of(transcript)
        if transcript.truncated or not how:
            return (Finding(part="format", rule="cut off" if transcript.truncated else "no answer"),)
        right = score > WHOLE
        rule = f"score {score:g} ({how})"
        findings = [Finding(part="correct", rule=rule, value=self._config.correct * right)]
        if not right and self._config.partial:
            findings.append(Finding(part="partial", rule=rule, value=self._config.partial * score))
        return (*findings, Finding(part="format", rule="an answer where it is asked for", value=self._config.format))


def score_of(transcript: Transcript) -> tuple[float, str]:
    """(score, how it was found); how is "" for an episode without an answer. Raises BadInput without a final state."""
    if not model_pieces(transcript):
        return 0.0, ""
    state = transcript.state or {}
    score, how = state.get("score"), state.get("how")
    if isinstance(score, bool) or not isinstance(score, int | float) or not isinstance(how, str):
        raise BadInput(
            "has no score of the environment", where=f"task {transcript.task.task_id}", key='"state"',
            expected='{"score": 0.5, "how": "scorer"}, as episodes of reasoning_gym leave it',
        )  # fmt: skip
    return float(score), how
