"""Blocksworld (PlanBench): write a plan that moves the blocks as wanted, or say whether a given plan is valid.

One message per episode. A plan is one action per line up to `[PLAN END]`; a verdict is `The above plan is valid.` or
`The above plan is invalid.` with the reason. Tasks are generated (`envs.problems.blocks.generate`) or read from files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Optional

from envs.base import Demonstration, Step
from envs.problems.blocks.execute import Plan
from envs.problems.blocks.files import tasks
from envs.problems.blocks.generate import Instance, flawed, generate, shortest_plan
from envs.problems.blocks.prompts import planbench_prompt, short_prompt
from envs.problems.blocks.read import INVALID, VALID, Problem, problem, read_task, stored_plan
from envs.problems.blocks.words import (
    PLAN,
    PLAN_END,
    STATEMENT,
    VERIFICATION,
    facts_words,
    plan_words,
    read_plan,
    read_verdict,
    state_facts,
    verdict_words,
)
from envs.tasks.splits import split_tasks
from rlsys.errors import BadInput, require
from rlsys.seeds import derive
from rlsys.types import EpisodeEnd, Message, Task


@dataclass(frozen=True, kw_only=True)
class BlocksworldConfig:
    name: str = "blocksworld"
    data: Optional[str] = None
    """Training tasks: PlanBench's records, or JSON lines with "initial", "goal" and, to be verified, "plan"; a path or
    a hub name; null generates instances."""
    eval_data: Optional[str] = None
    """Held-out tasks in the same formats, all of them; null takes them out of `data` (half at most), or generates."""
    train_tasks: int = 4096
    """Generated training instances; `data` is used whole."""
    held_out_tasks: int = 256
    """Generated, or taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of the generated instances, of the split of `data` and of the demonstrations."""
    min_blocks: int = 3
    max_blocks: int = 5
    verify_share: float = 0.5
    """Share of generated tasks that give a plan to verify; about half of those plans are valid."""
    prompt: Literal["planbench", "short"] = "planbench"
    """planbench: the rules and the conditions in full sentences; short: what stands on what, for a tiny policy."""
    demo_error_rate: float = 0.5
    """Share of demonstrations with a plan that fails, or with the wrong verdict."""

    def __post_init__(self) -> None:
        require(self.train_tasks >= 1, "env.train_tasks", self.train_tasks, "at least 1")
        require(self.held_out_tasks >= 1, "env.held_out_tasks", self.held_out_tasks, "at least 1")
        require(self.min_blocks >= 2, "env.min_blocks", self.min_blocks, "at least 2")
        known = self.min_blocks <= self.max_blocks <= 6
        require(known, "env.max_blocks", self.max_blocks, f"from env.min_blocks={self.min_blocks} to 6")
        require(0 <= self.verify_share <= 1, "env.verify_share", self.verify_share, "between 0 and 1")
        require(0 <= self.demo_error_rate <= 1, "env.demo_error_rate", self.demo_error_rate, "between 0 and 1")


class BlocksworldEnv:
    """One episode of one message. A verifying model may quote the plan, so that only a new statement stops it."""

    def __init__(self, prompt: tuple[Message, ...], *, verify: bool) -> None:
        self._prompt = prompt
        self._verify = verify
        self.stop_strings: Sequence[str] = (STATEMENT,) if verify else (PLAN_END,)

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        answered = read_verdict(text) is not None if self._verify else read_plan(text).problem is None
        return Step(end=EpisodeEnd.ANSWERED if answered else EpisodeEnd.MALFORMED)


class BlocksworldWorld:
    """Raises BadInput when a file of its config is missing or holds a malformed record."""

    tags: Sequence[str] = (STATEMENT, PLAN, PLAN_END, VERIFICATION)
    max_turns = 1

    def __init__(self, config: BlocksworldConfig) -> None:
        self._config = config
        self._split = split_tasks(
            data=config.data,
            eval_data=config.eval_data,
            held_out_tasks=config.held_out_tasks,
            seed=config.seed,
            read=tasks,
            generate=lambda held_out: _generated(config, held_out),
        )

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def env(self, task: Task) -> BlocksworldEnv:
        return BlocksworldEnv(self._prompt(task), verify=problem(task).plan is not None)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """A shortest plan, or the true verdict with its reason; a wrong one in a share `demo_error_rate` of the seeds.

        The short prompt's verdict has no reason. Raises BadInput for a task that is too large to be solved here and
        has no plan of its own, or that no plan solves.
        """
        rng = random.Random(derive("demonstration", self._config.seed, task.task_id, seed))
        mistaken = rng.random() < self._config.demo_error_rate
        asked = problem(task)
        said = self._verdict(asked, mistaken) if asked.plan is not None else _plan(task, asked, mistaken, rng)
        messages = (*self._prompt(task), Message(role="assistant", content=said))
        return Demonstration(task=task, messages=messages)

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for a tokenizer: prompts and demonstrations."""
        return islice((text for task in self._split.train for text in self._texts(task)), limit)

    def _texts(self, task: Task) -> list[str]:
        try:
            return [message.content for message in self.demonstration(task, 0).messages]
        except BadInput:  # a task without a demonstration is still one to train on
            return [message.content for message in self._prompt(task)]

    def _verdict(self, asked: Problem, mistaken: bool) -> str:
        valid = asked.valid != mistaken
        if self._config.prompt == "short" or mistaken:  # a wrong verdict has no reason to give
            return f"The above plan is {VALID if valid else INVALID}."
        return verdict_words(asked.state, asked.goal, asked.plan or ())

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        # One user message: some chat templates have no system role.
        write = planbench_prompt if self._config.prompt == "planbench" else short_prompt
        return (Message(role="user", content=write(problem(task), task.record.get("query"))),)


def _plan(task: Task, asked: Problem, mistaken: bool, rng: random.Random) -> str:
    plan = stored_plan(task.record, f"task {task.task_id}") or shortest_plan(asked.state, asked.goal)
    if not plan:
        raise BadInput(f"task {task.task_id}: {'the goal holds already' if plan == () else 'no plan reaches the goal'}")
    plan = flawed(Instance(initial=asked.state, goal=asked.goal), plan, rng) if mistaken else plan
    return f"{plan_words(plan)}\n{PLAN_END}"


def _generated(config: BlocksworldConfig, held_out: bool) -> Iterator[Task]:
    """The same tasks whatever their number: what is drawn for one depends on its instance alone."""
    count = config.held_out_tasks if held_out else config.train_tasks
    instances = generate(
        count, config.seed, min_blocks=config.min_blocks, max_blocks=config.max_blocks, held_out=held_out
    )
    for instance in instances:
        rng = random.Random(derive("blocksworld task", config.seed, instance.question))
        verify = rng.random() < config.verify_share
        words = {
            "initial": facts_words(state_facts(instance.initial, instance.blocks)),
            "goal": facts_words(instance.goal),
        }
        if verify:
            words["plan"] = plan_words(_to_verify(instance, rng))
        name = f"blocks-{derive(instance.question):08x}-{'verify' if verify else 'plan'}"
        yield read_task(words, name, name)


def _to_verify(instance: Instance, rng: random.Random) -> Plan:
    plan = shortest_plan(instance.initial, instance.goal)
    assert plan  # every arrangement can be reached, and the goal does not hold at the start
    return plan if rng.random() < 0.5 else flawed(instance, plan, rng)
