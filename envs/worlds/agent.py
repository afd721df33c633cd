"""An agent that somebody else wrote, unchanged: it asks as OpenAI's API is asked, and the policy answers.

| the agent | what happens |
|---|---|
| asks, with a history that was answered here and more | the policy goes on behind the very tokens that it sampled |
| asks anything else: an edited history, another agent's | a new conversation of the same episode, and a new sample |
| ends (exit code 0, or the function returns) | the episode ends, ANSWERED |
| raises, or ends with another code | MALFORMED: it could not go on from what the policy said |
| asks more than `max_turns` times | the request is refused, and the episode ends, TURN_LIMIT |
| asks nothing for `idle_s` | the episode fails, and says nothing of the policy |
| takes more memory or processes than it may | the same |

What it returns is the reward of `reward.name=agent`; any other reward reads the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from envs.agents.endpoint import AgentEndpoint
from envs.agents.process import AgentKeeper, AgentLimits, is_function
from envs.agents.session import AGENT, AgentEnv
from envs.base import Env, World
from envs.episode import OneMessage
from envs.services.guard import ToolFailed
from envs.tasks.config import TaskConfig
from envs.tasks.splits import split_tasks
from envs.tools.child_process import CallBroke
from rlsys.choices import extend_path
from rlsys.errors import BadInput, require, require_bounds
from rlsys.types import FailureKind, Message, Task


@dataclass(frozen=True, kw_only=True)
class AgentConfig(TaskConfig):
    name: str = "agent"
    agent: str = ""
    """Agent that is played: a Python function by its dotted path (`my_agent.solve`, called with the task, sync or
    async), or a command line (`python my_agent.py`, with the task as JSON on its standard input). Both find the policy
    at OPENAI_BASE_URL with OPENAI_API_KEY."""
    max_turns: int = 16
    """Number of requests that the policy answers in one episode."""
    idle_s: float = 60.0
    """Time in seconds that an agent may take between an answer and its next request, its start and its end included."""
    memory_mb: int = 2048
    """Memory of one agent with all processes that it starts, in MiB beyond what the module's import takes."""
    processes: int = 64
    """Number of processes and threads of one agent together, the first one included."""
    variables: list[str] = field(default_factory=list)
    """Names of environment variables that agents are given, besides PATH, HOME and their like."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "env.", "at least 1", "max_turns", "processes")
        require_bounds(self, "env.", "above 0", "idle_s")
        require(self.memory_mb >= 16, "env.memory_mb", self.memory_mb, "at least 16")


class AgentWorld(World):
    own_prompts = True

    def __init__(self, config: AgentConfig) -> None:
        if config.data is None:
            raise BadInput(key="env.data", found=None, expected="a file or data set: no tasks are made up for an agent")
        self._config, self.max_turns, self.reply_s = config, config.max_turns, max(30.0, config.idle_s)
        require(bool(config.agent.strip()), "env.agent", config.agent, "module.function, or a command line")
        if is_function(config.agent):
            extend_path()  # its keeper imports it
        limits = AgentLimits(memory_mb=config.memory_mb, processes=config.processes)
        self._keeper = AgentKeeper(config.agent, limits, config.variables)
        self._endpoint = AgentEndpoint()
        self.split = split_tasks(config, make=lambda count, held_out: (), check=lambda task: None, asked=None)

    def env(self, task: Task) -> OneMessage:
        """For those who look at a task without playing it: only its agent knows what it will ask."""
        return OneMessage((Message(role="user", content=task.question),), (), lambda text: True)

    async def open_env(self, task: Task) -> Env:
        return cast(Env, await self._begin(task))

    async def _begin(self, task: Task) -> AgentEnv:
        address = await self._endpoint.start()
        key, session = self._endpoint.open()
        forget = partial(self._endpoint.forget, key)
        try:
            process = await self._keeper.start(_agent_record(task), address, key)
        except BaseException as error:
            forget()
            if isinstance(error, CallBroke | OSError):
                raise ToolFailed(FailureKind.INFRA, AGENT, f"it cannot be started: {error}") from error
            raise
        return await AgentEnv(session, self._keeper, process, idle_s=self._config.idle_s, forget=forget).begin()

    async def check(self) -> None:
        """Play the agent on a task until it asks. Nothing of that is left: a driver checks, and plays nothing."""
        task = next(iter((*self.tasks("train")[:1], *self.tasks("held_out")[:1])))
        try:
            await self._begin(task)
        except ToolFailed as error:
            expected = ""
            if "ModuleNotFoundError" in error.failure.detail:
                expected = "packages of this Python, or a command of the agent's own: /path/venv/bin/python my_agent.py"
            raise BadInput(
                error.failure.detail, key="env.agent", found=self._config.agent, expected=expected
            ) from error
        finally:
            await self.close()

    async def close(self) -> None:
        await self._keeper.close()
        await self._endpoint.close()


def _agent_record(task: Task) -> dict[str, Any]:
    """A task as its agent gets it: what its row has, under its names too."""
    row = {"question": task.question, "answers": list(task.answers), **task.record}
    return {**row, "task_id": task.task_id}
