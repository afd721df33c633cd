"""`env.system` for every environment: a world whose episodes and demonstrations begin with a system text.

A config that declares `system` itself (`questions`, `prompts`, `graph`, one of a user's own) has a world that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from envs.base import Demonstration, World
from envs.tasks.config import TaskConfig
from rlsys.rollout import Env
from rlsys.types import Message, Step, Task


def add_system(world: World, config: Any) -> World:
    """The world as it is where its config has no system text, or has one of its own kind."""
    declared = [base for base in type(config).__mro__ if "system" in base.__dict__.get("__annotations__", {})]
    if declared[:1] != [TaskConfig] or not config.system:
        return world
    return cast(World, FramedWorld(world, config.system))


def prepend_system(system: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """A prompt with the text before it: in front of a system message that it has, and of a text without a chat."""
    first, *rest = messages
    if first.inline:
        return (replace(first, content=f"{system}\n{first.content}"), *rest)
    if first.role == "system":
        return (replace(first, content=f"{system}\n\n{first.content}"), *rest)
    return (Message(role="system", content=system), first, *rest)


class FramedWorld:
    """All else is the world's own."""

    def __init__(self, world: World, system: str) -> None:
        self._world, self._system = world, system

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def env(self, task: Task) -> Env:
        return cast(Env, FramedEnv(self._world.env(task), self._system))

    async def open_env(self, task: Task) -> Env:
        return cast(Env, FramedEnv(await self._world.open_env(task), self._system))

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        demonstration = self._world.demonstration(task, seed)
        env = None if demonstration.env is None else cast(Env, FramedEnv(demonstration.env, self._system))
        return replace(demonstration, messages=prepend_system(self._system, demonstration.messages), env=env)

    def texts(self, limit: int) -> Iterator[str]:
        return World.texts(cast(World, self), limit)

    def texts_of(self, task: Task) -> list[str]:
        return [self._system, *self._world.texts_of(task)]


class FramedEnv:
    def __init__(self, env: Any, system: str) -> None:
        self._env, self._system = env, system

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def first_messages(self) -> tuple[Message, ...]:
        return prepend_system(self._system, self._env.first_messages())

    async def step(self, text: str, **kwargs: Any) -> Step:
        step: Step = await self._env.step(text, **kwargs)
        return replace(step, reply=prepend_system(self._system, step.replies)) if step.reset_context else step
