"""Guess the number: an environment outside the repository, explained in writing.md in this folder."""

import random
from dataclasses import dataclass

from envs.base import Demonstration, World
from envs.episode import ToolEpisode, write_demonstration
from envs.protocols import Asked, Protocol, parse_tags
from envs.tasks.config import TaskConfig
from envs.tasks.splits import is_held_out, split_tasks
from rlsys.types import Task

GUESSING = Protocol(
    name="guess",
    tags=("<guess>", "</guess>", "<answer>", "</answer>"),
    stop=("</guess>", "</answer>"),
    parse=lambda text: parse_tags(text, "<guess>", "</guess>"),
    write_call=lambda guess: f"<guess>{guess}</guess>",
)


@dataclass(frozen=True, kw_only=True)
class GuessConfig(TaskConfig):
    name: str = "example_env.GuessWorld"
    width: int = 15
    """How many numbers the secret is one of."""


class GuessWorld(World):
    max_turns, tags = 6, GUESSING.tags

    def __init__(self, config: GuessConfig) -> None:
        self._config = config
        self.split = split_tasks(config, make=self._make)

    def _make(self, count: int, held_out: bool) -> list[Task]:
        tasks = [self._task(low) for low in range(1, 99 + 12 * count)]
        return [task for task in tasks if is_held_out(task.question) == held_out][:count]

    def _task(self, low: int) -> Task:
        question = f"I think of a number from {low} to {low + self._config.width - 1}."
        secret = low + random.Random(f"{self._config.seed} {low}").randrange(self._config.width)
        return Task(task_id=f"guess-{low}", question=question, answers=(str(secret),), record={"low": low})

    def env(self, task: Task) -> ToolEpisode:
        return ToolEpisode(GUESSING.prompt(Asked(question=task.question)), GUESSING, lambda guess: hint(guess, task))

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """Two random guesses, the second as the answer: it teaches the protocol, and leaves something to be found."""
        rng, low = self._config.drawn_for(task, seed), task.record["low"]
        guesses = [str(low + rng.randrange(self._config.width)) for _ in range(2)]
        said = write_demonstration(GUESSING, [(guess, hint(guess, task)) for guess in guesses], guesses[-1])
        return Demonstration(task=task, messages=(*self.env(task).first_messages(), *said))


def hint(guess: str, task: Task) -> str:
    number = int(guess) if guess.isdecimal() and len(guess) < 9 else 0  # the model may write anything
    secret = int(task.answers[0])
    return "yes" if number == secret else "higher" if number < secret else "lower"
