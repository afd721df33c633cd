"""Episodes of agents as real processes, in which the policy says what a test wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from actors.renderer import ChatRenderer
from envs.rewards.agent import AgentReward, AgentRewardConfig
from envs.worlds.agent import AgentConfig, AgentWorld
from rlsys.rollout import RolloutPlan
from rlsys.types import Reward, Task, Trajectory, Transcript
from tests.makers import made
from tests.makers.played import episode

PLAN = made.plan(max_turn_tokens=200, max_context=2000)


class Playing:
    """One world, and the loop that it lives in."""

    def __init__(self, folder: Path, renderer: ChatRenderer, **keys: Any) -> None:
        rows = made.jsonl(folder / "tasks.jsonl", [{"question": f"q{n}?", "answer": "5"} for n in range(20)])
        self._renderer, self._runner = renderer, asyncio.Runner()
        keys = {"agent": "tests.fakes.agents.play", "idle_s": 30, "max_turns": 6, "memory_mb": 600, **keys}
        self.world = AgentWorld(AgentConfig(data=rows, **keys))

    def play(self, name: str, *texts: str, plan: RolloutPlan = PLAN) -> Trajectory:
        async def score(transcript: Transcript) -> Reward:
            return AgentReward(AgentRewardConfig())(transcript)

        task = Task(task_id=name, question=name, record={"row": 1})
        return self._runner.run(episode(self.world, task, texts, self._renderer, score=score, plan=plan))

    def check(self) -> None:
        self._runner.run(self.world.check())

    def close(self) -> None:
        self._runner.run(self.world.close())
        self._runner.close()
