"""Two numbers that add up, answered in one message: what is learnt is how long to try, and what not to try again.

what the model writes                     what happens
tries, and a pair in `\\boxed{}`           ANSWERED
anything else                             MALFORMED
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from envs.base import Demonstration, World
from envs.episode import OneMessage
from envs.papers.long_cot import pairs
from envs.protocols.styles import STYLES
from envs.tasks.config import TaskConfig
from envs.tasks.splits import split_tasks
from rlsys.errors import BadInput, require, require_bounds
from rlsys.types import Message, Task

BOXED = STYLES["boxed"]


@dataclass(frozen=True, kw_only=True)
class PairsConfig(TaskConfig):
    name: str = "pairs"
    numbers: int = 7
    """Number of numbers in a question. One pair of them has the sum that is asked for: one in 21 of 7 numbers."""
    smallest: int = 10
    """Smallest number that there may be."""
    largest: int = 49
    """Largest number that there may be. All numbers of a question are different. From 10 to 49 they and their sums have
    two digits."""
    instruction: Optional[str] = None
    """Line after every question. null: to box the answer. "": none."""
    demo_error_rate: float = 0.25
    """Probability that a demonstration gives up after a try that failed, and answers with that pair, which is wrong."""
    demo_repeat_rate: float = 0.1
    """Share of the demonstrations' tries, after the first, that repeat an earlier one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(3 <= self.numbers <= 20, "env.numbers", self.numbers, "from 3 to 20")
        require_bounds(self, "env.", "at least 1", "smallest")
        enough = self.smallest + self.numbers <= self.largest + 1 <= 10**6
        expected = f"below a million, and numbers={self.numbers} of them from smallest={self.smallest} on"
        require(enough, "env.largest", self.largest, expected)
        require(0 <= self.demo_repeat_rate < 1, "env.demo_repeat_rate", self.demo_repeat_rate, "from 0 to below 1")


class PairsWorld(World):
    tags = BOXED.tags

    def __init__(self, config: PairsConfig) -> None:
        self._config = config
        self.write_answer = BOXED.write
        self.split = split_tasks(config, make=self._make)

    def _make(self, count: int, held_out: bool) -> map[Task]:
        config = self._config
        bounds = {"numbers": config.numbers, "smallest": config.smallest, "largest": config.largest}
        problems = pairs.generate(count, config.seed, held_out=held_out, **bounds)
        return map(pairs.to_task, problems)

    def env(self, task: Task) -> OneMessage:
        return OneMessage(self._prompt(task), BOXED.stop, lambda text: BOXED.answered(text, task))

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        custom = self._config.instruction
        instruction = BOXED.instruction if custom is None else custom
        return (Message(role="user", content="\n".join(filter(None, [task.question, instruction]))),)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """Tries until one is right or it gives up. Raises BadInput for a task of a file."""
        config, problem = self._config, pairs.problem_of_task(task)
        if problem is None:
            raise BadInput("not made up: nothing shows how it is solved", where=f"task {task.task_id}")
        rng = config.drawn_for(task, seed)
        text, answer = pairs.solution(problem, rng, give_up=config.demo_error_rate, repeat=config.demo_repeat_rate)
        content = f"{text}\n{BOXED.write(answer)}"
        return Demonstration(task=task, messages=(*self._prompt(task), Message(role="assistant", content=content)))
