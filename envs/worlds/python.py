"""Maths with Python, in ReTool's protocol (`envs.protocols.retool` has the table of endings).

The model writes code, its output comes back inside the model's own turn, and so on until it writes
`<answer>\\boxed{43}</answer>`. Tasks come from files and data sets (`envs.tasks.sources`) or are generated
(`envs.problems.word_problems`). The code runs in a sandbox (`envs.tools.sandbox`), never in this process.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Optional

from envs.base import Demonstration, Step
from envs.problems.word_problems import Problem, Steps, flawed, generate
from envs.protocols import DIALECTS, Answer
from envs.protocols.turns import max_turns, settle
from envs.rewards.transcript import INTERPRETER, split_inline
from envs.services.stats import ToolStats
from envs.tasks.few_shot import numbered, read_examples, write_example
from envs.tasks.sources import read_source
from envs.tasks.splits import split_tasks
from envs.tools.python_tool import PythonTool
from envs.tools.sandbox import SandboxConfig
from envs.worlds.search_config import MAX_EXAMPLES, ExamplesConfig
from envs.worlds.search_protocols import ICRL_AFTER_EXAMPLES, ICRL_EXAMPLES
from rlsys.errors import BadInput, require
from rlsys.seeds import derive
from rlsys.types import Message, Task

RETOOL = DIALECTS["retool"]
INSTRUCTION = (
    "Solve the problem step by step. Where a calculation helps, write Python between <code> and </code>, in a "
    "```python block that prints what you want to know: it is run, and the output is shown between <interpreter> and "
    "</interpreter>. At the end write <answer>\\boxed{the answer}</answer>."
)


@dataclass(frozen=True, kw_only=True)
class PythonMathConfig:
    name: str = "python_math"
    data: Optional[str] = None
    """Training problems: a file, or owner/name on the hub; null generates word problems."""
    data_split: Optional[str] = None
    """Of a data set on the hub, such as train."""
    eval_data: Optional[str] = None
    """Held-out problems, all of them; null holds out from `data` (half of it at most), or generates."""
    eval_split: Optional[str] = None
    train_tasks: int = 4096
    """Generated training problems; `data` is used whole."""
    held_out_tasks: int = 256
    """Generated, or taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of the generated problems, of the split of `data` and of the demonstrations."""
    max_turns: Optional[int] = None
    """Messages that the model may write: one per program and one for the answer; null: as many as the tokens allow."""
    max_reply_tokens: Optional[int] = None
    """Longer output is cut, closing tag and all; null leaves it to `sandbox.output_kb`."""
    instruction: str = INSTRUCTION
    """In front of every problem; may be empty."""
    demonstrations: ExamplesConfig = field(default_factory=ExamplesConfig)
    """In the prompt (ICRL); without a file, of generated problems."""
    demo_error_rate: float = 0.3
    """Share of sft demonstrations of generated problems that calculate the wrong thing."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)

    def __post_init__(self) -> None:
        for key in ("train_tasks", "held_out_tasks"):
            require(getattr(self, key) >= 1, f"env.{key}", getattr(self, key), "at least 1")
        for key in ("max_turns", "max_reply_tokens"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"env.{key}", value, "at least 1, or null")
        require(0 <= self.demo_error_rate <= 1, "env.demo_error_rate", self.demo_error_rate, "between 0 and 1")


class PythonMathEnv:
    """One episode: single use, holds the programs run so far."""

    stop_strings: Sequence[str] = RETOOL.stop

    def __init__(self, prompt: tuple[Message, ...], tool: PythonTool, max_reply_tokens: int | None) -> None:
        self._prompt = prompt
        self._tool = tool
        self._max_reply_tokens = max_reply_tokens
        self._programs: set[str] = set()

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        """Raises ToolFailed when the sandbox is broken; whatever the code does is a result."""
        settled = settle(RETOOL, text, turns_left=turns_left)
        if isinstance(settled, Step):
            return settled
        code = settled.text
        repeated = code in self._programs
        self._programs.add(code)
        output = (await self._tool.run(code)).text if code else RETOOL.blank
        return Step(reply=RETOOL.reply(code, output), repeated=repeated, max_tokens=self._max_reply_tokens)


class PythonMathWorld:
    """Raises BadInput when a source of its config is missing or holds a record that cannot be used."""

    tags: Sequence[str] = (*RETOOL.tags, "```python", "```", "\\boxed{", "}")

    def __init__(self, config: PythonMathConfig) -> None:
        self._config = config
        self.max_turns = max_turns(RETOOL, config.max_turns)
        # For examples in prompts: never trained on, never held out, whatever the stage's number of examples.
        self._aside = generate(MAX_EXAMPLES, derive("examples", config.seed), held_out=False)
        self._examples = self._read_examples()
        self._split = split_tasks(
            data=config.data,
            eval_data=config.eval_data,
            held_out_tasks=config.held_out_tasks,
            seed=config.seed,
            read=self._read,
            generate=self._generate,
        )
        self._tool = PythonTool(config.sandbox)

    # tasks

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def _read(self, source: str) -> list[Task]:
        config = self._config
        return read_source(source, split=config.data_split if source == config.data else config.eval_split)

    def _generate(self, held_out: bool) -> list[Task]:
        count = self._config.held_out_tasks if held_out else self._config.train_tasks
        aside = {problem.question for problem in self._aside}
        problems = generate(count + MAX_EXAMPLES, self._config.seed, held_out=held_out)
        return [_task(problem) for problem in problems if problem.question not in aside][:count]

    # episodes

    def env(self, task: Task) -> PythonMathEnv:
        return PythonMathEnv(self._prompt(task.question), self._tool, self._config.max_reply_tokens)

    def tool_stats(self) -> Mapping[str, ToolStats]:
        return {"python": self._tool.stats()}

    async def check(self) -> None:
        await self._tool.check()

    async def close(self) -> None:
        await self._tool.close()

    def _prompt(self, question: str) -> tuple[Message, ...]:
        parts = [self._config.instruction, question]
        if self._examples:
            examples = numbered(self._examples)
            parts = [parts[0], ICRL_EXAMPLES, examples, ICRL_AFTER_EXAMPLES, f"Actual Problem: {question}"]
        # One user message: some chat templates have no system role.
        return (Message(role="user", content="\n\n".join(part for part in parts if part)),)

    def _read_examples(self) -> tuple[str, ...]:
        count, file = self._config.demonstrations.count, self._config.demonstrations.file
        if count == 0:
            return ()
        if file is None:
            solved = [(problem.question, _solved(problem.steps)) for problem in self._aside]
            return tuple(write_example(asked, "".join(m.content for m in said)) for asked, said in solved)[:count]
        examples = read_examples(file)
        enough = f"at most {len(examples)}, the examples of {file}"
        require(count <= len(examples), "env.demonstrations.count", count, enough)
        return examples[:count]

    # demonstrations

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """A generated problem solved by one `print`, in a share `demo_error_rate` of the seeds with a mistake.

        The output is always true, and the answer copies it. Of a task from a file it is the record's `response`, as its
        rollout would have gone. Raises BadInput without a usable one.
        """
        if task.record.keys() == {"steps"}:  # generated: the record of a file holds its question too
            rng = random.Random(derive("demonstration", self._config.seed, task.task_id, seed))
            steps = tuple((str(expression), int(result)) for expression, result in task.record["steps"])
            said = _solved(flawed(steps, rng) if rng.random() < self._config.demo_error_rate else steps)
        else:
            said = recorded(task)
        turns = (len(said) + 1) // 2
        require(turns <= self.max_turns, "env.max_turns", self.max_turns, f"at least {turns} to solve {task.task_id}")
        return Demonstration(task=task, messages=(*self._prompt(task.question), *said))

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for a tokenizer: problems, and solutions where there are any."""
        return islice((text for task in self._split.train for text in self._texts(task)), limit)

    def _texts(self, task: Task) -> Iterator[str]:
        try:
            yield from (message.content for message in self.demonstration(task, 0).messages)
        except BadInput:  # a record without a solution is still a task to train on
            yield self._prompt(task.question)[0].content
            yield from task.answers


def recorded(task: Task) -> tuple[Message, ...]:
    """The record's `response`, cut into what the model wrote and the outputs. Raises BadInput without a usable one."""
    response = task.record.get("response")
    if not isinstance(response, str):
        raise BadInput(f'{task.task_id}: no "response" with code and outputs, expected one for an sft stage')
    said: list[Message] = []
    for message in split_inline(response.strip(), INTERPRETER):
        if message.role == "assistant":
            # Around an output the line breaks are the environment's: generation stopped at `</code>`.
            text = message.content.lstrip("\n") if said else message.content
            said.append(Message(role="assistant", content=text))
        else:
            output = message.content.removeprefix(INTERPRETER.opening).removesuffix(INTERPRETER.closing)
            call = said[-1].content.rstrip("\n") if said else ""
            if not said or said[-1].role != "assistant" or not call.endswith(RETOOL.stop):
                raise BadInput(f'{task.task_id}: "response" has an output that follows no {RETOOL.stop[0]}')
            said[-1] = Message(role="assistant", content=call)
            said.append(RETOOL.reply("", output.strip("\n")))
    if not said or said[-1].role != "assistant" or not isinstance(RETOOL.parse(said[-1].content), Answer):
        raise BadInput(
            f'{task.task_id}: "response" does not end in an answer, expected <answer>\\boxed{{...}}</answer>'
        )
    return tuple(said)


def program(steps: Steps) -> str:
    """All calculations as one: 6 * 8, then 48 - 5, is `print(6 * 8 - 5)`. Every result is whole, and stays so."""
    whole, so_far = "", None
    for expression, result in steps:
        left, operator, right = expression.replace("/", "//").split(" ")
        if left == so_far:
            left = f"({whole})" if operator in ("*", "//") else whole
        elif right == so_far:
            right = f"({whole})"
        whole, so_far = f"{left} {operator} {right}", str(result)
    return f"print({whole})"


def _solved(steps: Steps) -> tuple[Message, ...]:
    code, result = program(steps), str(steps[-1][1])
    return (
        Message(role="assistant", content=RETOOL.write_call(code)),
        RETOOL.reply(code, result),
        Message(role="assistant", content=RETOOL.write_answer(result)),
    )


def _task(problem: Problem) -> Task:
    digest = hashlib.blake2b(problem.question.encode(), digest_size=6).hexdigest()
    record = {"steps": [list(step) for step in problem.steps]}
    return Task(task_id=f"word-{digest}", question=problem.question, answers=(str(problem.answer),), record=record)
