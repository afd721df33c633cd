"""What an agent has returned about its own episode (`env.name=agent`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envs.rewards import WHOLE
from envs.rewards.findings import Finding, SumOfFindings
from rlsys.errors import BadInput
from rlsys.types import Transcript


@dataclass(frozen=True, kw_only=True)
class AgentRewardConfig:
    name: str = "agent"

    def env_problem(self, env: Any) -> str:
        """Why it cannot score the episodes of this environment."""
        return "" if getattr(env, "name", "") == "agent" else "only the agents of env.name=agent return a reward"


class AgentReward(SumOfFindings):
    """The number that the agent returned, or printed in its last line, or the "reward" of such an object.

    `return {"reward": 0.5, "note": ".."}`: Reward(value=0.5, parts={"returned": 0.5}). An agent that has returned
    nothing, since its episode was cut or it has raised: 0. Anything else that it returned is a failure.
    """

    parts = ("returned",)
    solved_by: ClassVar[Mapping[str, float]] = {"returned": WHOLE}

    def __init__(self, config: AgentRewardConfig) -> None:
        pass

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        state = transcript.state or {}
        if state.get("exit") != 0:  # what it printed before is no result
            return (Finding(part="returned", rule="it has returned nothing", value=0.0),)
        returned = state.get("returned")
        value = returned.get("reward") if isinstance(returned, Mapping) else returned
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise BadInput(
                "is no reward",
                where=f"task {transcript.task.task_id}",
                key="the agent's result",
                found=str(returned)[:80],
                expected='a number, or {"reward": number}, returned or printed last; or another reward.name',
            )
        return (Finding(part="returned", rule="returned", value=float(value)),)
