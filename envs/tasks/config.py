"""What every environment's configuration has: where its tasks come from, and how many are made up."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Optional

from rlsys.errors import require, require_bounds
from rlsys.seeds import derive
from rlsys.types import Task


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The keys are flat: `env.data`, `env.seed`. An environment's own config adds its keys to them."""

    has_tool: ClassVar[bool] = False  # that `tools` switches off

    name: str
    tools: bool = True
    """false: without the environment's tool. The prompt names none, and a call is answered like one over the limit."""
    data: Optional[str] = None
    """Training tasks: a file (JSON lines, a JSON array, parquet), a folder, or owner/name on the hub; null makes them
    up."""
    data_split: Optional[str] = None
    """Of a folder or a data set on the hub, such as train."""
    data_tasks: Optional[int] = None
    """Train on this many of `data`, the same for a seed, a smaller number part of a larger one; null: on all."""
    eval_data: Optional[str] = None
    """Held-out tasks, all of them; null holds out from `data` (half of it at most), or makes them up."""
    eval_split: Optional[str] = None
    """Of `eval_data`, such as test: `data` and `eval_data` may be the same data set."""
    train_tasks: int = 4096
    """Made-up training tasks; `data` is used whole."""
    held_out_tasks: int = 256
    """Made-up ones, or how many are taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of everything made up, of the split of `data` and of the demonstrations."""
    demo_error_rate: float = 0.5
    """Share of the demonstrations of made-up tasks with a mistake in them, which mostly end in a wrong answer."""

    def __post_init__(self) -> None:
        require(self.tools or self.has_tool, "env.tools", False, f"true: {self.name} has no tool")
        require_bounds(self, "env.", "at least 1", "train_tasks", "held_out_tasks")
        require_bounds(self, "env.", "at least 1, or null", "data_tasks")
        require_bounds(self, "env.", "between 0 and 1", "demo_error_rate")

    @property
    def protocol_name(self) -> str:
        """In `envs.protocols.PROTOCOLS`; empty for an environment without one."""
        return ""

    def drawn_for(self, task: Task, seed: int) -> random.Random:
        """What a demonstration draws from: the same for the same task and seed, in every process."""
        return random.Random(derive("demonstration", self.seed, task.task_id, seed))
