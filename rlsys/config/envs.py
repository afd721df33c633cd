"""Several environments in one stage: each with a share of its groups, and a reward and a curriculum of its own.

The recipe of a stage stands for as many recipes of one environment (`RecipeConfig.by_env`). What checks, plays or
evaluates looks at each of them, and knows of no other kind of recipe. A task carries its environment's name in its id:
`sums/word-1f0c29a77b3e`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Optional

from rlsys.errors import require

BETWEEN = "/"  # an environment's name, and the id that the task has without it


@dataclass(frozen=True, kw_only=True)
class EnvShare:
    """One environment of several, NAME in `envs`: all keys of `env`, those of `reward` and `curriculum` in sections of
    these names, and the ones here. `env` and `reward` hold the dataclass that their `name` selects."""

    label: Optional[str] = None
    """Name of the environment in task ids, metrics and results; NAME in these keys. null: its `name`."""
    weight: float = 1.0
    """Share of the stage's groups (sft: demonstrations) that this environment gets, relative to the weights of the
    others."""
    env: Any = None
    reward: Any = None
    curriculum: Any = None  # a CurriculumConfig

    def __post_init__(self) -> None:
        require(0 < self.weight < math.inf, "weight", self.weight, "a number above 0")


def name_task(env: str, task_id: str) -> str:
    """The id of a task of this environment; as it is where the recipe has one environment, which has no name."""
    return f"{env}{BETWEEN}{task_id}" if env else task_id


def env_of(task_id: str) -> str:
    """The environment that an id names, in a stage with several."""
    return task_id.partition(BETWEEN)[0]


def env_in(envs: Collection[str], task_id: str) -> str:
    """The environment of a task of a stage; "" for the only one. envs: the names of several, else empty."""
    return env_of(task_id) if envs else ""


def own_id(task_id: str) -> str:
    """The id that the environment itself gave."""
    return task_id.partition(BETWEEN)[2]


def by_name(name: str, key: str) -> str:
    """The key of a metric of one environment: `by_env/sums/reward/mean`."""
    return f"by_env/{name}/{key}"
