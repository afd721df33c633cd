"""Which tasks are trained on and which are held out: decided by the questions, so it is the same in every run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envs.tasks.config import TaskConfig
from envs.tasks.formats import read_source
from rlsys.errors import BadInput, require
from rlsys.types import Task

HELD_OUT_ONE_IN = 8  # share of all generated questions that is never trained on


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Training and held-out tasks, without a question in common."""

    train: tuple[Task, ...]
    held_out: tuple[Task, ...]

    def tasks(self, split: str) -> tuple[Task, ...]:
        """`train`, `held_out` or `all`. Raises BadInput for another name."""
        splits = {"train": self.train, "held_out": self.held_out, "all": self.train + self.held_out}
        require(split in splits, "split", split, f"one of {', '.join(splits)}")
        return splits[split]


def is_held_out(question: str) -> bool:
    """For generated questions: decided by the question alone, whatever the seeds and counts."""
    return int.from_bytes(_digest(question)[:8], "big") % HELD_OUT_ONE_IN == 0


def made_up_task(kind: str, question: str, answer: str, record: Mapping[str, Any]) -> Task:
    """Its id is like `word-1f0c29a77b3e`."""
    digest = hashlib.blake2b(question.encode(), digest_size=6).hexdigest()
    return Task(task_id=f"{kind}-{digest}", question=question, answers=(answer,), record=record)


def split_tasks(
    config: TaskConfig,
    *,
    make: Callable[[int, bool], Iterable[Task]],
    read: Callable[..., Iterable[Task]] = read_source,
    same: Callable[[Task], object] = lambda task: _plain(task.question),
    what: str = "question",
) -> Split:
    """Tasks of a config: `read(source, split=split)` of its data, or `make(count, held_out)` where it names none.

    Held out is all of `eval_data`; without it, `held_out_tasks` of `data` in a seeded hash order (half of them at
    most), or what is made up. A held-out task is not trained on: `same` gives what two tasks that are the same have in
    common, a question without case, white space and the mark at its end.
    """
    data, eval_data = config.data, config.eval_data
    train = list(make(config.train_tasks, False) if data is None else read(data, split=config.data_split))
    if eval_data is not None:
        held_out = list(read(eval_data, split=config.eval_split))
    elif data is None:
        held_out = list(make(config.held_out_tasks, True))
    else:
        count = min(config.held_out_tasks, len(train) // 2)
        held_out = sorted(train, key=lambda task: _digest(f"{config.seed}\x1f{task.question}"))[:count]
    apart = {same(task) for task in held_out}
    train = [task for task in train if same(task) not in apart]
    if data is not None and config.data_tasks is not None:
        train = _some(train, config.data_tasks, config.seed, data)
    if not train:
        raise BadInput(f"{data}: every {what} is also held out in {eval_data or data}: nothing is left to train on")
    return Split(train=tuple(train), held_out=tuple(held_out))


def _some(tasks: list[Task], count: int, seed: int, data: str) -> list[Task]:
    """In their order, chosen by a hash that is not the one that holds out."""
    if count > len(tasks):
        raise BadInput(f"env.data_tasks={count}: {data} has {len(tasks)} training tasks")
    chosen = sorted(range(len(tasks)), key=lambda index: _digest(f"data_tasks\x1f{seed}\x1f{tasks[index].question}"))
    return [tasks[index] for index in sorted(chosen[:count])]


def _plain(question: str) -> str:
    """Without what sources differ in: case, white space, the mark at the end."""
    return " ".join(question.split()).casefold().rstrip(" ?.")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
