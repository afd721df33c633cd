"""Which tasks are trained on and which are held out: decided by the questions, so it is the same in every run."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from envs.tasks.config import TaskConfig
from envs.tasks.conversation import full_question, turns_before
from envs.tasks.formats import read_source
from rlsys.asked import normalize_question
from rlsys.errors import BadInput, require
from rlsys.seeds import hash_order, stable_sample
from rlsys.types import Task

HELD_OUT_ONE_IN = 8  # share of all generated questions that is never trained on
_wanted: ContextVar[bool] = ContextVar("tasks_wanted", default=True)


class Split:
    """Training and held-out tasks, without a question in common."""

    def __init__(self, read: Callable[[], tuple[tuple[Task, ...], ...]]) -> None:
        """read: training, held-out, and those that are neither, for they are the same as a held-out one.

        Read at once, unless `defer_reading` is around it.
        """
        self._read = cache(read)
        if _wanted.get():
            self._read()

    @property
    def train(self) -> tuple[Task, ...]:
        return self._read()[0]

    @property
    def held_out(self) -> tuple[Task, ...]:
        return self._read()[1]

    def tasks(self, split: str) -> tuple[Task, ...]:
        """`train`, `held_out` or `all`. Raises BadInput for another name."""
        splits = {"train": self.train, "held_out": self.held_out, "all": sum(self._read(), ())}
        require(split in splits, "split", split, f"one of {', '.join(splits)}")
        return splits[split]


@contextmanager
def defer_reading() -> Iterator[None]:
    """Worlds that are made inside read their tasks when they are asked for them, and not before."""
    before = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(before)


def is_held_out(question: str) -> bool:
    """For generated questions: decided by the question alone, whatever the seeds and counts."""
    return int.from_bytes(hash_order(question)[:8], "big") % HELD_OUT_ONE_IN == 0


def make_generated_task(kind: str, question: str, answer: str, record: Mapping[str, Any]) -> Task:
    """Its id is like `word-1f0c29a77b3e`."""
    digest = hashlib.blake2b(question.encode(), digest_size=6).hexdigest()
    return Task(task_id=f"{kind}-{digest}", question=question, answers=(answer,), record=record)


def split_tasks(
    config: TaskConfig,
    *,
    make: Callable[[int, bool], Iterable[Task]],
    read: Callable[..., Iterable[Task]] = read_source,
    same: Callable[[Task], object] = lambda task: _question_key(task),
    what: str = "question",
    check: Callable[[Task], object] | None = None,
    asked: Callable[[Task], str] | None = lambda task: task.question,
) -> Split:
    """Tasks of a config: `read(source, split=split)` of its data, or `make(count, held_out)` where it names none.

    Held out is all of `eval_data`, each task once; without it, different ones of `data` in a seeded hash order
    (`held_out_of`), or what is made up. A held-out task is not trained on: `same` gives what two tasks that are the
    same have in common, a question without case, white space and the mark at its end, and its options in any order.
    `check` raises BadInput for a task of the data that cannot be played: without it, one whose row has messages before
    its question. asked: the text in which the options of a multiple choice have to stand; None where the environment
    shows them itself.
    """
    check = check or (lambda task: _refuse_turns(task, config))

    def read_checked(source: str, *, split: str | None) -> list[Task]:
        renamed = {"columns": config.columns} if config.columns else {}
        if renamed and not _accepts_argument(read, "columns"):
            raise BadInput(
                key="env.columns", found=config.columns, expected="none: this environment reads files itself"
            )
        tasks = list(read(source, split=split, **renamed))
        for task in tasks:
            check(task)
            if asked is not None:
                _refuse_options(task, asked)
        return tasks

    return Split(lambda: read_split(config, make, read_checked, same, what))


def _accepts_argument(read: Callable[..., object], name: str) -> bool:
    parameters = inspect.signature(read).parameters
    return name in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _refuse_turns(task: Task, config: TaskConfig) -> None:
    """For an environment whose prompt is made of the question alone."""
    turns = turns_before(task)
    if turns:
        base = getattr(config, "template", None) == "base"
        ways = f"{'env.template=instruct, or ' if base else ''}env.name=prompts, which plays them"
        roles = ", ".join(turn.role for turn in turns)
        raise BadInput(f"messages before the question ({roles})", where=task.task_id, expected=ways)


def _option_texts(task: Task) -> list[str]:
    options = task.record.get("options")
    return [str(text) for text in options.values()] if isinstance(options, Mapping) else []


def _refuse_options(task: Task, prompt_text: Callable[[Task], str]) -> None:
    """For an environment that would ask without them, and compare with a letter."""
    missing = [option for option in _option_texts(task) if option not in prompt_text(task)]
    if missing:
        expected = "env.name=questions with env.style=choice, which shows the options"
        raise BadInput("a multiple choice whose options are not in its question", where=task.task_id, expected=expected)


def _question_key(task: Task) -> object:
    """Of a multiple choice with its options: many ask which of them is true."""
    return normalize_question(full_question(task)), *sorted(map(normalize_question, _option_texts(task)))


def read_split(
    config: TaskConfig,
    make: Callable[[int, bool], Iterable[Task]],
    read: Callable[..., Iterable[Task]],
    same: Callable[[Task], object],
    kind: str,
) -> tuple[tuple[Task, ...], ...]:
    """(training, held-out, left out of training)"""
    data, eval_data = config.data, config.eval_data
    train = list(make(config.train_tasks, False) if data is None else read(data, split=config.data_split))
    content = {id(task): same(task) for task in train}  # of a conversation it reads the whole
    if eval_data is not None:
        held_out = _deduplicate(read(eval_data, split=config.eval_split), lambda task: _copy_key(task, same))
    elif data is None:
        held_out = list(make(config.held_out_count, True))
    else:
        different = _deduplicate(sorted(train, key=_hash_order(train, config.seed)), lambda task: content[id(task)])
        held_out = different[: config.held_out_of(len(different))]
    apart, held_out_ids = {same(task) for task in held_out}, {task.task_id for task in held_out}
    # Of one file every task can be played: it has no other place.
    alike = [task for task in train if content[id(task)] in apart]
    twins = [task for task in alike if task.task_id not in held_out_ids] if eval_data is None else []
    train = [task for task in train if content[id(task)] not in apart]
    if data is not None and config.data_tasks is not None:
        train = _sample_tasks(train, config.data_tasks, config.seed, data)
    if not train:
        raise BadInput(f"every {kind} is also held out in {eval_data or data}: nothing is left to train on", where=data)
    return tuple(train), tuple(held_out), tuple(twins)


def _copy_key(task: Task, same: Callable[[Task], object]) -> object:
    """What copies of a row have in common: two questions about one graph are no copies. Without an answer the row says
    what is asked, such as the seed of a game."""
    key = task.answers or json.dumps(task.record, sort_keys=True, default=repr)
    return same(task), normalize_question(task.question), key


def _deduplicate(tasks: Iterable[Task], same: Callable[[Task], object]) -> list[Task]:
    """The tasks without duplicates, the first of each: a file may hold one many times, as AIME's often do."""
    unique: dict[object, Task] = {}
    for task in tasks:
        unique.setdefault(same(task), task)
    return list(unique.values())


def _sample_tasks(tasks: list[Task], count: int, seed: int, data: str) -> list[Task]:
    """`count` of the tasks in their order, sampled by another hash than the held-out split's."""
    if count > len(tasks):
        raise BadInput(f"{data} has {len(tasks)} training tasks", key="env.data_tasks", found=count)
    return stable_sample(tasks, count, _hash_order(tasks, "data_tasks", seed))


def _hash_order(tasks: list[Task], *salt: object) -> Callable[[Task], bytes]:
    """A hash order by the questions; of those that several tasks ask, by the whole conversation."""
    counts = Counter(task.question for task in tasks)
    return lambda task: hash_order(*salt, task.question if counts[task.question] == 1 else full_question(task))
