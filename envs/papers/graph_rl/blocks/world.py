"""Blocksworld (PlanBench): write a plan that moves the blocks as wanted, or say whether a given plan is valid.

One message per episode. A plan is one action per line up to `[PLAN END]`; a verdict is `The above plan is valid.` or
`The above plan is invalid.` with the reason. Tasks are made up (`generate.py`) or read from files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from envs.base import Demonstration, World
from envs.episode import OneMessage
from envs.papers.graph_rl.blocks.execute import blocks_of
from envs.papers.graph_rl.blocks.generate import generate
from envs.papers.graph_rl.blocks.read import (
    demonstrated_plan,
    generate_tasks,
    graph_rl_prompt,
    planbench_prompt,
    problem_of,
    read_tasks,
    short_prompt,
    verdict_on,
)
from envs.papers.graph_rl.blocks.words import PLAN, PLAN_END, STATEMENT, VERIFICATION, read_plan, read_verdict
from envs.tasks.config import TaskConfig
from envs.tasks.splits import split_tasks
from envs.text.words import without_thought
from rlsys.errors import require, require_bounds
from rlsys.types import Message, Task

PROMPTS = {"planbench": planbench_prompt, "graph_rl": graph_rl_prompt, "short": short_prompt}


@dataclass(frozen=True, kw_only=True)
class BlocksworldConfig(TaskConfig):
    """Blocksworld tasks. `data` holds PlanBench's records, or "initial", "goal" and, to be verified, "plan"."""

    name: str = "blocksworld"
    min_blocks: int = 3
    """Number of blocks of the smallest made-up task."""
    max_blocks: int = 5
    """Number of blocks of the largest made-up task."""
    verify_share: float = 0.5
    """Share of made-up tasks that give a plan to verify; about half of those plans are valid."""
    prompt: Literal["planbench", "graph_rl", "short"] = "planbench"
    """Wording of the prompt. planbench: the rules and the conditions in full sentences. graph_rl: the same in that
    paper's words. short: only which block is on which, for a tiny policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.min_blocks >= 2, "env.min_blocks", self.min_blocks, "at least 2")
        is_valid = self.min_blocks <= self.max_blocks <= 6
        require(is_valid, "env.max_blocks", self.max_blocks, f"from env.min_blocks={self.min_blocks} to 6")
        require_bounds(self, "env.", "between 0 and 1", "verify_share")


class BlocksworldWorld(World):
    tags = (STATEMENT, PLAN, PLAN_END, VERIFICATION)

    def __init__(self, config: BlocksworldConfig) -> None:
        self._config = config
        self.split = split_tasks(config, make=self._generate_tasks, read=read_tasks)

    def _generate_tasks(self, count: int, held_out: bool) -> Iterator[Task]:
        low, high, seed = self._config.min_blocks, self._config.max_blocks, self._config.seed
        instances = generate(count, seed, min_blocks=low, max_blocks=high, held_out=held_out)
        return generate_tasks(instances, seed, verify_share=self._config.verify_share)

    def level(self, task: Task) -> str:
        """How many blocks there are."""
        return str(len(blocks_of(problem_of(task).initial)))

    def env(self, task: Task) -> OneMessage:
        if problem_of(task).plan is None:
            return OneMessage(
                self._prompt(task), (PLAN_END,), lambda text: read_plan(without_thought(text)).problem is None
            )
        # A verifying model may quote the plan, so that only a new statement stops it.
        return OneMessage(
            self._prompt(task), (STATEMENT,), lambda text: read_verdict(without_thought(text)) is not None
        )

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """A shortest plan, or the true verdict with its reason; a wrong one in a share `demo_error_rate` of the seeds.

        The short prompt's verdict has no reason. Raises BadInput for a task that is too large to be solved here and
        comes without a plan, or that no plan solves.
        """
        rng, problem = self._config.drawn_for(task, seed), problem_of(task)
        mistaken = rng.random() < self._config.demo_error_rate
        if problem.plan is None:
            text = demonstrated_plan(task, problem, rng, mistaken=mistaken)
        else:
            text = verdict_on(problem, mistaken=mistaken, reason=self._config.prompt == "planbench")
        messages = (*self._prompt(task), Message(role="assistant", content=text))
        return Demonstration(task=task, messages=messages)

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        # One user message: some chat templates have no system role.
        content = PROMPTS[self._config.prompt](problem_of(task), task.record.get("query"))
        return (Message(role="user", content=content),)
