"""Word problems with a calculator (SWiRL's mathematics protocol).

The model writes `<math_exp>48 / 2</math_exp>`, the environment answers `48 / 2 -> 24.0`, and so on until the model
writes `<answer>24</answer>`. Tasks are generated (`envs.problems.word_problems`) or read from files in GSM8K's format.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Optional

from envs.base import Demonstration, Step
from envs.problems.word_problems import Problem, flawed, generate
from envs.protocols import DIALECTS, Dialect, write_answer, write_math_call
from envs.protocols.turns import max_turns, settle
from envs.rewards.answer import parse_number
from envs.tasks.jsonl import read_jsonl, text_field
from envs.tasks.splits import split_tasks
from envs.tools.calculator import calculate
from rlsys.errors import BadInput, require
from rlsys.seeds import derive
from rlsys.types import Message, Task

DIALECT = DIALECTS["swirl_math"]
FINAL_ANSWER = "#### "  # GSM8K: the answer stands after it


@dataclass(frozen=True, kw_only=True)
class CalculatorConfig:
    name: str = "calculator"
    data: Optional[str] = None
    """Training tasks: JSON lines with "question" and "answer", the result after `#### `; null generates problems."""
    eval_data: Optional[str] = None
    """Held-out tasks in the same format, all of them; null holds out from `data` (half of it at most), or generates."""
    train_tasks: int = 4096
    """Generated training problems; a `data` file is used whole."""
    held_out_tasks: int = 256
    """Generated, or taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of the generated problems, of the split of `data` and of the demonstrations."""
    max_turns: int = 4
    """Messages that the model may write: one per calculation and one for the answer (SWiRL: 11)."""
    last_chance: bool = False
    """A calculation in the last message is answered with a request to answer, and one more message (SWiRL)."""
    demo_error_rate: float = 0.5
    """Share of demonstrations of generated problems that contain a mistake and end in a wrong answer."""
    instruction: str = "Calculate with <math_exp>48 / 2</math_exp>, then finish with <answer>24</answer>."
    """One line in front of every question; may be empty."""

    def __post_init__(self) -> None:
        require(self.train_tasks >= 1, "env.train_tasks", self.train_tasks, "at least 1")
        require(self.held_out_tasks >= 1, "env.held_out_tasks", self.held_out_tasks, "at least 1")
        require(self.max_turns >= 1, "env.max_turns", self.max_turns, "at least 1")
        require(0 <= self.demo_error_rate <= 1, "env.demo_error_rate", self.demo_error_rate, "between 0 and 1")


class CalculatorEnv:
    """One episode: single use, holds the calls made so far."""

    def __init__(self, prompt: tuple[Message, ...], dialect: Dialect) -> None:
        self.stop_strings: Sequence[str] = dialect.stop
        self._prompt = prompt
        self._dialect = dialect
        self._calls: set[str] = set()

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        """An answer wins over a call; of several calls the first is executed."""
        settled = settle(self._dialect, text, turns_left=turns_left)
        if isinstance(settled, Step):
            return settled
        call = settled.text
        repeated = call in self._calls
        self._calls.add(call)
        return Step(reply=_reply(call), repeated=repeated)


class CalculatorWorld:
    """Raises BadInput when a file of its config is missing or holds a malformed record."""

    tags: Sequence[str] = DIALECT.tags

    def __init__(self, config: CalculatorConfig) -> None:
        self._config = config
        self._dialect = DIALECT if config.last_chance else replace(DIALECT, over_limit=None)
        self.max_turns = max_turns(self._dialect, config.max_turns)
        self._split = split_tasks(
            data=config.data,
            eval_data=config.eval_data,
            held_out_tasks=config.held_out_tasks,
            seed=config.seed,
            read=read_tasks,
            generate=partial(_generate, config),
        )

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def env(self, task: Task) -> CalculatorEnv:
        return CalculatorEnv(self._prompt(task), self._dialect)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How the task is solved, with a mistake in a share `demo_error_rate` of the seeds where the task is generated.

        Tool replies are always true and the final answer copies the last of them, except for tasks from a file: their
        calculations are the `<<48/2=24>>` of the record and the answer is the record's. Raises BadInput without those.
        """
        messages = list(self._prompt(task))
        if _generated(task):
            rng = random.Random(derive("demonstration", self._config.seed, task.task_id, seed))
            steps = tuple((str(expression), int(result)) for expression, result in task.record["steps"])
            mistaken = rng.random() < self._config.demo_error_rate
            steps = flawed(steps, rng) if mistaken else steps
            calls, final = [expression for expression, _ in steps], _short(calculate(steps[-1][0]))
        else:
            calls, final = annotated_calls(task), task.answers[0]
        enough = len(calls) + 1
        turns = self._config.max_turns
        require(enough <= turns, "env.max_turns", turns, f"at least {enough} to solve {task.task_id}")
        for call in calls:
            messages += [Message(role="assistant", content=write_math_call(call)), _reply(call)]
        messages.append(Message(role="assistant", content=write_answer(final)))
        return Demonstration(task=task, messages=tuple(messages))

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for a tokenizer: prompts, calls, replies and answers."""
        return islice((text for task in self._split.train for text in self._texts(task)), limit)

    def _texts(self, task: Task) -> list[str]:
        if _generated(task):
            return [message.content for message in self.demonstration(task, 0).messages]
        # Not its demonstration: a record without usable calculations is still a task to train on.
        solution = [str(task.record["answer"]), write_answer(task.answers[0])]
        return [message.content for message in self._prompt(task)] + solution

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        # One user message: some chat templates have no system role.
        lines = [self._config.instruction, task.question] if self._config.instruction else [task.question]
        return (Message(role="user", content="\n".join(lines)),)


def annotated_calls(task: Task) -> list[str]:
    """The calculations of a GSM8K solution: `<<48/2=24>>` gives `48/2`. Raises BadInput for a broken one, or none."""
    solution = str(task.record.get("answer", ""))
    calls: list[str] = []
    for piece in solution.split("<<")[1:]:
        expression, equals, rest = piece.partition("=")
        if not equals or ">>" not in rest or calculate(expression).startswith("error"):
            raise BadInput(f"{task.task_id}: <<{piece[:40]!r} is not a calculation, expected <<48/2=24>>")
        calls.append(expression.strip())
    if not calls:
        raise BadInput(f'{task.task_id}: no calculations in "answer", expected <<48/2=24>> for an sft stage')
    return calls


def read_tasks(path: str) -> list[Task]:
    """A file in GSM8K's format. Raises BadInput: `data.jsonl line 7: no "question"`."""
    tasks: list[Task] = []
    for number, record in read_jsonl(path):
        where = f"{path} line {number}"
        question, solution = text_field(record, "question", where), text_field(record, "answer", where)
        _, mark, final = solution.rpartition(FINAL_ANSWER)
        final = final.strip()
        if parse_number(final) is not None:
            final = final.replace(",", "")  # a demonstration writes 1,080 as the calculator does
        if not mark or not final:
            raise BadInput(f'{where}: "answer" ends in {solution[-20:]!r}, expected "{FINAL_ANSWER}" and the result')
        task_id = f"{os.path.basename(path)}:{number}"
        tasks.append(Task(task_id=task_id, question=question.strip(), answers=(final,), record=record))
    return tasks


def _generate(config: CalculatorConfig, held_out: bool) -> list[Task]:
    count = config.held_out_tasks if held_out else config.train_tasks
    return [_task(problem) for problem in generate(count, config.seed, held_out=held_out)]


def _task(problem: Problem) -> Task:
    digest = hashlib.blake2b(problem.question.encode(), digest_size=6).hexdigest()
    record: dict[str, Any] = {"steps": [list(step) for step in problem.steps]}
    return Task(task_id=f"word-{digest}", question=problem.question, answers=(str(problem.answer),), record=record)


def _generated(task: Task) -> bool:
    return "steps" in task.record and "question" not in task.record  # a file's record may have a field "steps" too


def _reply(call: str) -> Message:
    return DIALECT.reply(call, calculate(call))


def _short(result: str) -> str:
    """A whole result without its `.0`: `24.0` gives `24`."""
    return result.removesuffix(".0")
