"""The world of a stage with several environments: their tasks together, each with its environment's name in its id.

No episode is played in it: a group is played in the world of its own environment, as in a stage with that one alone;
which one it is of says `rlsys/mixed_curriculum.py`.
Here are the tasks to draw from, what shows them to a learner, and the texts for a tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import Any, TypeVar

from envs.base import Demonstration, World
from envs.tasks.splits import Split
from rlsys.config.envs import env_of, name_task, own_id
from rlsys.rollout import Env
from rlsys.types import Task

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """MixtureConfig(parts={"sums": QuestionsConfig(...), "calculator": CalculatorConfig(...)})"""

    parts: Mapping[str, Any]  # the configs of the environments, by name

    @property
    def name(self) -> str:
        return ", ".join(self.parts)

    @property
    def max_turns(self) -> int:
        """Of the environment with the longest episodes, as far as configs say it."""
        return max(getattr(part, "max_turns", None) or 1 for part in self.parts.values())


def config_of(config: Any, task: Task) -> Any:
    """The config of the environment that a task of this one is of."""
    return config.parts[env_of(task.task_id)] if isinstance(config, MixtureConfig) else config


def parts_of(config: Any) -> tuple[Any, ...]:
    """The configs of all environments of one."""
    return tuple(config.parts.values()) if isinstance(config, MixtureConfig) else (config,)


class MixtureWorld(World):
    def __init__(self, config: MixtureConfig, make: Callable[[Any], World]) -> None:
        self.parts = {name: make(part) for name, part in config.parts.items()}
        self.split = Split(lambda: (self._named("train"), self._named("held_out"), ()))
        self.max_turns = max(world.max_turns for world in self.parts.values())
        self.tags = tuple(dict.fromkeys(tag for world in self.parts.values() for tag in world.tags))

    def _named(self, split: str) -> tuple[Task, ...]:
        """The tasks of all environments, round-robin."""
        return tuple(_interleave([self.tasks_of(name, split) for name in self.parts]))

    def tasks_of(self, name: str, split: str) -> list[Task]:
        """Those of one environment."""
        tasks = self.parts[name].tasks(split)
        return [replace(task, task_id=name_task(name, task.task_id)) for task in tasks]

    def part(self, task: Task) -> tuple[World, Task]:
        """The world of a task, and the task as that world has it."""
        return self.parts[env_of(task.task_id)], replace(task, task_id=own_id(task.task_id))

    def env(self, task: Task) -> Env:
        world, part_task = self.part(task)
        return world.env(part_task)

    async def open_env(self, task: Task) -> Env:
        world, part_task = self.part(task)
        return await world.open_env(part_task)

    def level(self, task: Task) -> str:
        world, part_task = self.part(task)
        return world.level(part_task)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        world, part_task = self.part(task)
        demonstration = world.demonstration(part_task, seed)
        return replace(demonstration, task=task, env=demonstration.env or world.env(part_task))

    def texts(self, limit: int) -> Iterator[str]:
        """Of each environment in turn: what has few texts is not crowded out by what has many."""
        return islice(_interleave([world.texts(limit) for world in self.parts.values()]), limit)

    def texts_of(self, task: Task) -> list[str]:
        world, part_task = self.part(task)
        return world.texts_of(part_task)

    def answers_of(self, task: Task) -> Sequence[str]:
        world, part_task = self.part(task)
        return world.answers_of(part_task)

    def prepare(self) -> None:
        for world in self.parts.values():
            world.prepare()

    async def check(self) -> None:
        for world in self.parts.values():
            await world.check()

    async def close(self) -> None:
        for world in self.parts.values():
            await world.close()


def _interleave(sources: Sequence[Iterable[T]]) -> Iterator[T]:
    """The sources interleaved round-robin; one that is used up is skipped."""
    return (element for element in chain.from_iterable(zip_longest(*sources)) if element is not None)
