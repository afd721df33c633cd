"""Questions that are answered in one message, without a tool: maths, multiple choice, short answers.

The answer stands in `\\boxed{}`, in an answer tag, or as a letter (`envs.protocols.styles`). Questions come from files
and data sets (`envs.tasks.formats`) or are made up: long sums whose solutions are written out (`envs.problems.sums`).

    what the model writes               what happens
    an answer in the config's style     ANSWERED
    anything else                       MALFORMED
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from envs.base import Demonstration, World
from envs.episode import OneMessage
from envs.framed import prepend_system
from envs.problems import sums
from envs.protocols.styles import STYLES, options
from envs.tasks.config import TaskConfig
from envs.tasks.conversation import refuse_context, turns_before
from envs.tasks.formats import read_source
from envs.tasks.prompts import Prompt
from envs.tasks.splits import split_tasks
from rlsys.errors import BadInput, require, require_bounds
from rlsys.types import Message, Task

MADE_UP_STYLES = ("boxed", "answer_tag", "free")


@dataclass(frozen=True, kw_only=True)
class QuestionsConfig(TaskConfig):
    name: str = "questions"
    demo_error_rate: float = 0.3
    style: Literal["boxed", "answer_tag", "choice", "yes_no", "free"] = "boxed"
    """Place of the answer in the message: `\\boxed{}`, `<answer>` tags, a letter of the options, `<answer>yes</answer>`
    or `no`, or the whole message."""
    template: Literal["base", "instruct"] = "instruct"
    """Form of the prompt. base: one text without a chat template. instruct: chat messages."""
    system: str = ""
    """System message of the prompt, for models whose chat template has that role, in front of one that a row has.
    Empty: none."""
    instruction: Optional[str] = None
    """Line after every question. null: the style's own. "": none."""
    prompt: Optional[str] = None
    """File with the whole user message: a path, or an included one such as graph_rl/strategyqa. Its slots, such as
    `{question}` and `{choices}`, are fields of the record."""
    sums: sums.SumsConfig = field(default_factory=sums.SumsConfig)
    demo_recheck_rate: float = 0.1
    """Share of the demonstrations with a mistake that is noticed and corrected."""
    demo_column_rate: float = 0.5
    """Share of the demonstrations that add by columns, several times as long as adding in one go."""
    demo_doubt_rate: float = 0.0
    """Probability that a right addition is checked again, and again after each check. It makes a solution longer and no
    better."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "env.", "between 0 and 1", "demo_recheck_rate", "demo_column_rate")
        require(0 <= self.demo_doubt_rate < 1, "env.demo_doubt_rate", self.demo_doubt_rate, "from 0 to below 1")
        total_rate = self.demo_error_rate + self.demo_recheck_rate
        require(total_rate <= 1, "env.demo_recheck_rate", self.demo_recheck_rate, "at most 1 with env.demo_error_rate")
        is_valid = self.data is not None or self.style in MADE_UP_STYLES
        require(is_valid, "env.style", self.style, f"{', '.join(MADE_UP_STYLES)} without env.data: sums are made up")
        alone = self.prompt is None or not self.instruction
        require(alone, "env.instruction", self.instruction, "null with env.prompt, which is the whole message")


class QuestionsWorld(World):
    def __init__(self, config: QuestionsConfig) -> None:
        self._config = config
        self._style = STYLES[config.style]
        self._file = Prompt(config.prompt) if config.prompt is not None else None
        self.tags = self._style.tags
        chat = config.template == "instruct"
        self.split = split_tasks(
            config,
            make=self._generate_tasks,
            read=self._read,
            check=turns_before if chat else None,
            asked=None,
        )

    def _generate_tasks(self, count: int, held_out: bool) -> Iterable[Task]:
        return map(sums.to_task, sums.generate(count, self._config.seed, self._config.sums, held_out=held_out))

    def _read(self, source: str, **how: Any) -> list[Task]:
        tasks = read_source(source, **how)
        style = self._config.style
        for task in tasks:
            refuse_context(task, self._file.slots if self._file is not None else ())
            if style == "choice":
                require(bool(options(task)), "env.style", style, f"options in every record, {task.task_id} has none")
            elif self._file is None:
                lettered = f"choice: {task.task_id} has options, and a letter as its answer"
                require(not options(task), "env.style", style, lettered)
        for task in tasks if self._file is not None else ():
            self._asked(task)  # a field that it lacks is said before anything is played
        return tasks

    def env(self, task: Task) -> OneMessage:
        return OneMessage(self._prompt(task), self._style.stop, lambda text: self._style.answered(text, task))

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        config, content = self._config, self._asked(task)
        if config.template == "base":
            return (Message(role="user", content=f"{config.system}\n{content}\n".lstrip("\n"), inline=True),)
        messages = (*turns_before(task), Message(role="user", content=content))
        return prepend_system(config.system, messages) if config.system else messages

    def _asked(self, task: Task) -> str:
        choices = [f"{letter}. {text}" for letter, text in options(task).items()]
        if self._file is not None:
            return self._file.fill(task, choices="\n".join(choices))
        custom = self._config.instruction
        instruction = self._style.instruction if custom is None else custom
        lines = [task.question, *(choices if self._config.style == "choice" else ())]
        return "\n".join([*lines, instruction] if instruction else lines)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """A worked solution: of a made-up sum with the config's noise, else the record's. Raises BadInput without."""
        terms = sums.terms_of_task(task)
        if terms is not None:
            text, answer = self._sum(terms, self._config.drawn_for(task, seed))
        else:
            if not task.answers:
                raise BadInput("no answer to demonstrate", where=f"task {task.task_id}")
            text, answer = find_solution(task), task.answers[0]
        if not self._style.answered(text, task):
            text = f"{text}\n{self._style.write(answer)}"
        return Demonstration(task=task, messages=(*self._prompt(task), Message(role="assistant", content=text)))

    def _sum(self, terms: sums.Terms, rng: random.Random) -> tuple[str, str]:
        config = self._config
        fate, columns = rng.random(), rng.random() < config.demo_column_rate
        slips = fate < config.demo_error_rate + config.demo_recheck_rate
        slip = sums.draw_slip(terms, rng) if slips else None
        doubts = [self._doubts(rng) for _ in terms[1:]]
        noticed = fate >= config.demo_error_rate
        text, total = sums.solution(terms, columns=columns, slip=slip, recheck=noticed, doubts=doubts)
        return text, str(total)

    def _doubts(self, rng: random.Random) -> int:
        """How often one addition is doubted."""
        count = 0
        while rng.random() < self._config.demo_doubt_rate:
            count += 1
        return count


def find_solution(task: Task) -> str:
    """The worked solution of a record: `response` or `solution`, or GSM8K's `answer` without its marks.

    Raises BadInput without one.
    """
    for key in ("response", "solution", "answer"):
        text = task.record.get(key)
        if isinstance(text, str) and (key != "answer" or "####" in text):
            if key == "answer":  # `48/2 = <<48/2=24>>24 clips ... #### 24` without the calculator's marks, and the end
                head, *rest = text.rpartition("####")[0].split("<<")
                text = head + "".join(piece.partition(">>")[2] for piece in rest)
            return text.strip()
    raise BadInput('no "response", "solution" or GSM8K "answer"', where=task.task_id, expected="one for an sft stage")
