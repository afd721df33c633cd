"""Questions that are answered in one message, without a tool: maths, multiple choice, short answers.

The answer stands in `\\boxed{}`, in an answer tag, or as a letter (`envs.worlds.answer_styles`). Questions come from
files and data sets (`envs.tasks.sources`) or are generated: long sums whose solutions are written out
(`envs.problems.sums`).

    what the model writes               what happens
    an answer in the config's style     ANSWERED
    anything else                       MALFORMED
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Literal, Optional

from envs.base import Demonstration, Step
from envs.problems import sums
from envs.problems.sums import SumsConfig
from envs.tasks.sources import read_source
from envs.tasks.splits import split_tasks
from envs.worlds.answer_styles import STYLES, options
from rlsys.errors import BadInput, require
from rlsys.seeds import derive
from rlsys.types import EpisodeEnd, Message, Task

GENERATED_STYLES = ("boxed", "answer_tag")


@dataclass(frozen=True, kw_only=True)
class QuestionsConfig:
    name: str = "questions"
    style: Literal["boxed", "answer_tag", "choice", "yes_no", "free"] = "boxed"
    """Where the answer stands: `\\boxed{}`, `<answer>` tags, a letter of the options, `<answer>yes</answer>` or `no`,
    or the whole message."""
    data: Optional[str] = None
    """Training tasks: a file, or owner/name on the hub; null generates sums."""
    data_split: Optional[str] = None
    """Of a data set on the hub, such as train."""
    eval_data: Optional[str] = None
    """Held-out tasks, all of them; null holds out from `data` (half of it at most), or generates."""
    eval_split: Optional[str] = None
    train_tasks: int = 4096
    """Generated training sums; `data` is used whole."""
    held_out_tasks: int = 256
    """Generated, or taken out of `data` in a seeded hash order."""
    seed: int = 0
    """Of the generated sums, of the split of `data` and of the demonstrations."""
    template: Literal["base", "instruct"] = "instruct"
    """base: one text without a chat template."""
    system: str = ""
    """A system message, for models whose chat template has that role."""
    instruction: Optional[str] = None
    """A line after every question; null is the style's own, "" is none."""
    sums: SumsConfig = field(default_factory=SumsConfig)
    demo_error_rate: float = 0.3
    """Share of demonstrations of generated sums with a slip, and so a wrong answer."""
    demo_recheck_rate: float = 0.1
    """Share with a slip that is noticed and set right."""
    demo_column_rate: float = 0.5
    """Share that adds by columns: several times as long as adding in one go."""

    def __post_init__(self) -> None:
        require(self.train_tasks >= 1, "env.train_tasks", self.train_tasks, "at least 1")
        require(self.held_out_tasks >= 1, "env.held_out_tasks", self.held_out_tasks, "at least 1")
        for key in ("demo_error_rate", "demo_recheck_rate", "demo_column_rate"):
            require(0 <= getattr(self, key) <= 1, f"env.{key}", getattr(self, key), "between 0 and 1")
        both = self.demo_error_rate + self.demo_recheck_rate
        require(both <= 1, "env.demo_recheck_rate", self.demo_recheck_rate, "at most 1 with env.demo_error_rate")
        known = self.data is not None or self.style in GENERATED_STYLES
        require(known, "env.style", self.style, f"{' or '.join(GENERATED_STYLES)} without env.data: sums are generated")


class QuestionsEnv:
    """One episode of one message."""

    def __init__(self, config: QuestionsConfig, task: Task) -> None:
        self._config, self._task = config, task
        self._style = STYLES[config.style]
        self.stop_strings: Sequence[str] = self._style.stop

    def first_messages(self) -> tuple[Message, ...]:
        instruction = self._config.instruction
        instruction = self._style.instruction if instruction is None else instruction
        lines = [self._task.question]
        if self._config.style == "choice":
            lines += [f"{letter}. {text}" for letter, text in options(self._task).items()]
        asked = "\n".join([*lines, instruction] if instruction else lines)
        system = self._config.system
        if self._config.template == "base":
            return (Message(role="user", content=f"{system}\n{asked}\n".lstrip("\n"), inline=True),)
        said = (Message(role="system", content=system),) if system else ()
        return (*said, Message(role="user", content=asked))

    async def step(self, text: str, *, turns_left: int) -> Step:
        answered = self._style.answered(text, self._task)
        return Step(end=EpisodeEnd.ANSWERED if answered else EpisodeEnd.MALFORMED)


class QuestionsWorld:
    """Raises BadInput when a source of its config is missing or holds a record that cannot be used."""

    max_turns = 1

    def __init__(self, config: QuestionsConfig) -> None:
        self._config = config
        self.tags: Sequence[str] = STYLES[config.style].tags
        self._split = split_tasks(
            data=config.data,
            eval_data=config.eval_data,
            held_out_tasks=config.held_out_tasks,
            seed=config.seed,
            read=self._read,
            generate=partial(generated, config),
        )

    def _read(self, source: str) -> list[Task]:
        config = self._config
        split = config.data_split if source == config.data else config.eval_split
        tasks = read_source(source, split=split)
        if config.style == "choice":
            for task in tasks:
                require(bool(options(task)), "env.style", "choice", f"options in every record, {task.task_id} has none")
        return tasks

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def env(self, task: Task) -> QuestionsEnv:
        return QuestionsEnv(self._config, task)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """A worked solution: of a generated sum with the config's noise, else the record's. Raises BadInput without."""
        style = STYLES[self._config.style]
        if task.record.keys() == {"terms"}:  # generated: the record of a file holds its question too
            text, answer = self._sum(task, seed)
        else:
            text, answer = written_solution(task), task.answers[0]
        if not style.answered(text, task):
            text = f"{text}\n{style.write(answer)}"
        messages = (*self.env(task).first_messages(), Message(role="assistant", content=text))
        return Demonstration(task=task, messages=messages)

    def _sum(self, task: Task, seed: int) -> tuple[str, str]:
        rng = random.Random(derive("demonstration", self._config.seed, task.task_id, seed))
        terms = tuple(int(term) for term in task.record["terms"])
        fate, columns = rng.random(), rng.random() < self._config.demo_column_rate
        slips = fate < self._config.demo_error_rate + self._config.demo_recheck_rate
        text, total = sums.solution(
            terms,
            columns=columns,
            slip=sums.draw_slip(terms, rng) if slips else None,
            recheck=fate >= self._config.demo_error_rate,
        )
        return text, str(total)

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for a tokenizer: prompts, and solutions where there are any."""
        return islice((text for task in self._split.train for text in self._texts(task)), limit)

    def _texts(self, task: Task) -> Iterator[str]:
        yield from (message.content for message in self.env(task).first_messages())
        try:
            yield self.demonstration(task, 0).messages[-1].content
        except BadInput:  # a record without a solution is still a task to train on
            yield from task.answers


def generated(config: QuestionsConfig, held_out: bool) -> list[Task]:
    """Sums of one side of the split."""
    count = config.held_out_tasks if held_out else config.train_tasks
    found = sums.generate(count, config.seed, config.sums, held_out=held_out)
    return [
        Task(
            task_id=f"sum-{'-'.join(map(str, terms))}",
            question=sums.question(terms),
            answers=(str(sum(terms)),),
            record={"terms": list(terms)},
        )
        for terms in found
    ]


def written_solution(task: Task) -> str:
    """The worked solution of a record: `response` or `solution`, or GSM8K's `answer` without its marks.

    Raises BadInput without one.
    """
    for key in ("response", "solution", "answer"):
        text = task.record.get(key)
        if isinstance(text, str) and (key != "answer" or "####" in text):
            return _without_marks(text) if key == "answer" else text.strip()
    raise BadInput(f'{task.task_id}: no "response", "solution" or GSM8K "answer", expected one for an sft stage')


def _without_marks(text: str) -> str:
    """GSM8K: `48/2 = <<48/2=24>>24 clips ... #### 24` without the calculator's marks and the final answer."""
    head, *rest = text.rpartition("####")[0].split("<<")
    return (head + "".join(piece.partition(">>")[2] for piece in rest)).strip()
