"""Guess the number: an environment outside the repository, explained in writing.md beside this file.

The model writes `<guess>32</guess>`, the environment answers `higher`, `lower` or `yes`, and so on until the model
writes `<answer>47</answer>`. It pays to halve what is left: messages are few.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from envs.base import Demonstration, Step
from envs.protocols import ANSWER_CLOSE, ANSWER_OPEN, answer, first_between, write_answer
from envs.tasks.splits import Split, is_held_out
from rlsys.errors import require
from rlsys.seeds import derive
from rlsys.types import EpisodeEnd, Message, Task

GUESS_OPEN, GUESS_CLOSE = "<guess>", "</guess>"


@dataclass(frozen=True, kw_only=True)
class GuessConfig:
    name: str = "example_env.GuessWorld"
    train_tasks: int = 1000
    held_out_tasks: int = 100
    seed: int = 0
    """Of the tasks and the demonstrations."""
    width: int = 15
    """How many numbers the secret is one of."""
    max_turns: int = 6
    """Messages that the model may write: guesses, and the answer."""
    demo_error_rate: float = 0.3
    """Share of guesses in demonstrations that ignore what was said before."""

    def __post_init__(self) -> None:
        require(self.train_tasks >= 1, "env.train_tasks", self.train_tasks, "at least 1")
        require(self.held_out_tasks >= 1, "env.held_out_tasks", self.held_out_tasks, "at least 1")
        require(2 <= self.width <= 99, "env.width", self.width, "from 2 to 99")
        require(self.max_turns >= 2, "env.max_turns", self.max_turns, "at least 2: a guess and the answer")
        require(0 <= self.demo_error_rate <= 1, "env.demo_error_rate", self.demo_error_rate, "between 0 and 1")


class GuessEnv:
    """One episode: single use."""

    stop_strings: Sequence[str] = (GUESS_CLOSE, ANSWER_CLOSE)

    def __init__(self, task: Task) -> None:
        self._task = task
        self._guesses: set[str] = set()

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content=self._task.question),)

    async def step(self, text: str, *, turns_left: int) -> Step:
        if answer(text) is not None:
            return Step(end=EpisodeEnd.ANSWERED)
        guess = first_between(text, GUESS_OPEN, GUESS_CLOSE)
        if guess is None:
            return Step(end=EpisodeEnd.MALFORMED)
        if turns_left <= 0:
            return Step(end=EpisodeEnd.TURN_LIMIT)
        repeated = guess in self._guesses
        self._guesses.add(guess)
        return Step(reply=said(hint(guess, int(self._task.answers[0]))), repeated=repeated)


class GuessWorld:
    tags: Sequence[str] = (GUESS_OPEN, GUESS_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)

    def __init__(self, config: GuessConfig) -> None:
        self._config = config
        self.max_turns = config.max_turns
        self._split = Split(
            train=make_tasks(config, config.train_tasks, held_out=False),
            held_out=make_tasks(config, config.held_out_tasks, held_out=True),
        )

    def tasks(self, split: str) -> Sequence[Task]:
        return self._split.tasks(split)

    def env(self, task: Task) -> GuessEnv:
        return GuessEnv(task)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """Halve what is left; a share of the guesses forgets what was said. The last message is the last guess."""
        rng = random.Random(derive("demonstration", self._config.seed, task.task_id, seed))
        low, high = task.record["low"], task.record["high"]
        messages = list(GuessEnv(task).first_messages())
        guess = low
        for _ in range(self.max_turns - 1):
            forgets = rng.random() < self._config.demo_error_rate
            guess = rng.randint(task.record["low"], task.record["high"]) if forgets else (low + high) // 2
            reply = hint(str(guess), int(task.answers[0]))
            messages += [Message(role="assistant", content=f"{GUESS_OPEN}{guess}{GUESS_CLOSE}"), said(reply)]
            if reply == "yes":
                break
            low, high = (max(low, guess + 1), high) if reply == "higher" else (low, min(high, guess - 1))
        messages.append(Message(role="assistant", content=write_answer(str(guess))))
        return Demonstration(task=task, messages=tuple(messages))

    def texts(self, limit: int) -> Iterator[str]:
        for task in self._split.train[:limit]:
            yield "\n".join(message.content for message in self.demonstration(task, 0).messages)


def hint(guess: str, secret: int) -> str:
    if not re.fullmatch("[0-9]{1,9}", guess):  # a bounded pattern: the model may write anything
        return "a number, please"
    return "yes" if int(guess) == secret else "higher" if int(guess) < secret else "lower"


def said(text: str) -> Message:
    return Message(role="user", content=text)


def make_tasks(config: GuessConfig, count: int, *, held_out: bool) -> tuple[Task, ...]:
    """`count` different (range, secret) of one side of the split: decided by the task's content, not by the seed."""
    rng = random.Random(derive("guess", config.seed))
    found: dict[str, Task] = {}
    for _ in range(1000 + 100 * count):
        low = rng.randint(1, 999 - config.width)
        high = low + config.width - 1
        secret = rng.randint(low, high)
        task_id = f"guess-{low}-{high}-{secret}"
        if len(found) < count and is_held_out(task_id) == held_out:
            question = f"I think of a number from {low} to {high}."
            found[task_id] = Task(
                task_id=task_id, question=question, answers=(str(secret),), record={"low": low, "high": high}
            )
    require(len(found) == count, "env tasks", count, f"at most {len(found)}, which is all that width gives")
    return tuple(found.values())
