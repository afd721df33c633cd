"""Which tasks are trained on and which are held out: decided by the questions, so it is the same in every run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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


def split_tasks(
    *,
    data: str | None,
    eval_data: str | None,
    held_out_tasks: int,
    seed: int,
    read: Callable[[str], Iterable[Task]],
    generate: Callable[[bool], Iterable[Task]],
) -> Split:
    """Tasks of a config: from `data` with `read`, or where it is null from `generate(held_out)`.

    Held out is all of `eval_data`; without it, `held_out_tasks` of `data` in a seeded hash order (half of them at
    most), or what `generate` gives. A held-out question is not trained on, wherever and however it is written.
    """
    train = list(generate(False) if data is None else read(data))
    if eval_data is not None:
        held_out = list(read(eval_data))
    elif data is None:
        held_out = list(generate(True))
    else:
        count = min(held_out_tasks, len(train) // 2)
        held_out = sorted(train, key=lambda task: _digest(f"{seed}\x1f{task.question}"))[:count]
    questions = {_plain(task.question) for task in held_out}
    train = [task for task in train if _plain(task.question) not in questions]
    if not train:
        raise BadInput(f"{data}: every question is also held out in {eval_data or data}: nothing is left to train on")
    return Split(train=tuple(train), held_out=tuple(held_out))


def _plain(question: str) -> str:
    """Without what sources differ in: case, white space, the mark at the end."""
    return " ".join(question.split()).casefold().rstrip(" ?.")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
