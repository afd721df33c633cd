"""Episodes of agents as real processes, in which the policy says what a test wrote."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actors.renderer import ChatRenderer
from envs.rewards.agent import AgentReward, AgentRewardConfig
from envs.worlds.agent import AgentConfig, AgentWorld
from rlsys.rollout import RolloutPlan
from rlsys.types import Reward, Task, Trajectory, Transcript
from tests.makers import made
from tests.makers.played import episode

PLAN = made.plan(max_turn_tokens=200, max_context=2000, timeout_s=300.0)


def install(package: str, folder: Path) -> Path:
    """The Python of a new environment with this package; the test is skipped where it cannot be installed."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    installed = subprocess.run([python, "-m", "pip", "install", "-q", package], capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"{package} cannot be installed here")
    return python


class Playing:
    """One world, and the loop that it lives in."""

    def __init__(self, folder: Path, renderer: ChatRenderer, **keys: Any) -> None:
        rows = made.jsonl(folder / "rows.jsonl", [{"question": f"q{n}?", "answer": "5"} for n in range(20)])
        self._renderer, self._runner = renderer, asyncio.Runner()
        keys = {
            "agent": "tests.fakes.agents.play",
            "data": rows,
            "idle_s": 30,
            "max_turns": 6,
            "memory_mb": 600,
            **keys,
        }
        self.world = AgentWorld(AgentConfig(**keys))

    def play(self, task: str | Task, *texts: str, plan: RolloutPlan = PLAN) -> Trajectory:
        """task: by its name, where the agent reads no more of it."""

        async def score(transcript: Transcript) -> Reward:
            return AgentReward(AgentRewardConfig())(transcript)

        if isinstance(task, str):
            task = Task(task_id=task, question=task, record={"row": 1})
        return self._runner.run(episode(self.world, task, texts, self._renderer, score=score, plan=plan))

    def check(self) -> None:
        self._runner.run(self.world.check())

    def close(self) -> None:
        self._runner.run(self.world.close())
        self._runner.close()
