"""What every environment's configuration has: where its tasks come from, and how many are made up."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

from rlsys.config.identity import LATER
from rlsys.errors import require, require_bounds
from rlsys.seeds import derive_seed
from rlsys.types import Task

HELD_OUT, HELD_OUT_OF_FEW = 256, 16  # by default: at most, and of a file whose tenth would be less


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Source of an environment's tasks, with flat keys: `env.data`, `env.seed`. An environment's own config adds its
    keys to them."""

    has_tool: ClassVar[bool] = False  # that `tools` switches off

    name: str
    tools: bool = True
    """Whether the environment's tool is available. false: the prompt names no tool, and a call is answered like one
    over the limit."""
    system: str = field(default="", metadata=LATER)
    """System message at the beginning of every prompt, in front of one that the environment has itself. Empty: none."""
    template_args: dict[str, Any] = field(default_factory=dict, metadata=LATER)
    """Arguments that the chat template is given with every conversation of this environment, such as
    `{enable_thinking: false}`. One that it never reads, or that rlsys gives it itself, is refused."""
    data: Optional[str] = None
    """Training tasks: a file (JSON lines, a JSON array, parquet, CSV with a header), a folder (one that `datasets`
    saved, too), or owner/name on the hub. null: tasks are made up."""
    columns: dict[str, str] = field(default_factory=dict, metadata=LATER)
    """Columns of `data` and `eval_data` that have another name there: `{question: instruction, answer: output}` reads
    the column `instruction` as the question."""
    data_split: Optional[str] = None
    """Split of `data`, such as train, for a folder or a data set on the hub."""
    data_tasks: Optional[int] = None
    """Number of tasks of `data` to train on, drawn by the seed. A smaller draw is part of a larger one. null: all of
    them."""
    eval_data: Optional[str] = None
    """Held-out tasks, all of which are used, each once. null: a part of `data` is held out (at most half of it), or
    tasks are made up."""
    eval_split: Optional[str] = None
    """Split of `eval_data`, such as test. `data` and `eval_data` may be the same data set."""
    train_tasks: int = 4096
    """Number of made-up training tasks. It has no effect on `data`, which is used whole."""
    held_out_tasks: Optional[int] = None
    """Number of held-out tasks: made up, or taken out of `data` in a seeded hash order, at most half of it. null: 256,
    of a small file a tenth, and 16 of one with fewer than 160 tasks."""
    seed: int = 0
    """Seed of everything made up, of the split of `data` and of the demonstrations."""
    demo_error_rate: float = 0.5
    """Share of the demonstrations of made-up tasks that contain a mistake, which mostly leads to a wrong answer."""

    def __post_init__(self) -> None:
        require(self.tools or self.has_tool, "env.tools", False, f"true: {self.name} has no tool")
        read = self.data is not None or self.eval_data is not None or not self.columns
        require(read, "env.columns", self.columns, "none without env.data or env.eval_data")
        twice = next((name for name in self.columns.values() if [*self.columns.values()].count(name) > 1), None)
        require(twice is None, "env.columns", self.columns, f"one name for the column {twice!r}")
        require_bounds(self, "env.", "at least 1", "train_tasks")
        require_bounds(self, "env.", "at least 1, or null", "data_tasks", "held_out_tasks")
        require_bounds(self, "env.", "between 0 and 1", "demo_error_rate")

    @property
    def held_out_count(self) -> int:
        """Of made-up tasks."""
        return HELD_OUT if self.held_out_tasks is None else self.held_out_tasks

    def held_out_of(self, tasks: int) -> int:
        """Of as many different tasks of one file."""
        small = max(tasks // 10, HELD_OUT_OF_FEW) if self.held_out_tasks is None else tasks
        return min(self.held_out_count, small, tasks // 2)

    @property
    def protocol_name(self) -> str:
        """In `envs.protocols.PROTOCOLS`; empty for an environment without one."""
        return ""

    def drawn_for(self, task: Task, seed: int) -> random.Random:
        """What a demonstration draws from: the same for the same task and seed, in every process."""
        return random.Random(derive_seed("demonstration", self.seed, task.task_id, seed))
