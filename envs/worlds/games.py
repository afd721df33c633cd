"""Games of gymnasium, played as text: an action a message, and what is seen of the game in reply.

what the model writes                    what happens
a text whose last word is an action      it is taken; the reply is what is then seen, or the game is over: ANSWERED
anything else                            the reply names the actions; the message is spent
the last message that is allowed         if the game is not over: TURN_LIMIT
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Optional

from envs.base import Demonstration, World
from envs.problems.games import GAMES, Play
from envs.tasks.config import TaskConfig
from envs.tasks.files import read_records
from envs.tasks.splits import is_held_out, split_tasks
from rlsys.errors import BadInput, require, require_bounds
from rlsys.summaries import CALLS, VALID
from rlsys.types import EpisodeEnd, Message, Step, Task

TRIES = 64  # seeds for each game that is wanted
MARKS = ".,!*`\"'"  # around an action


@dataclass(frozen=True, kw_only=True)
class GamesConfig(TaskConfig):
    """A game of gymnasium. `data` holds the seeds of its games: {"seed": 7}."""

    name: str = "games"
    game: Literal["frozen_lake", "taxi", "blackjack"] = "frozen_lake"
    """Game that is played. frozen_lake: walk over ice and around its holes. taxi: fetch a passenger. blackjack: draw
    cards up to 21."""
    size: int = 5
    """Side of the map of `frozen_lake`, in squares."""
    holes: float = 0.3
    """Probability of a hole in a square of `frozen_lake`. A map without a way to the goal is drawn again."""
    max_turns: int = 20
    """Maximum number of the model's messages in one game, those without an action among them."""
    instruction: Optional[str] = None
    """Text before what is seen first. null: the rules of the game and its actions. "": none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(2 <= self.size <= 12, "env.size", self.size, "from 2 to 12")
        require(0 <= self.holes <= 0.5, "env.holes", self.holes, "between 0 and 0.5")
        require_bounds(self, "env.", "at least 1", "max_turns")
        require_bounds(self, "env.", "0 or more", "seed")  # gymnasium's generators take no other

    def start(self, seed: int) -> Play:
        return Play(GAMES[self.game], seed, self.size, self.holes)


class GamesWorld(World):
    def __init__(self, config: GamesConfig) -> None:
        self._config, self.max_turns = config, config.max_turns
        self.split = split_tasks(config, make=self._make, read=self._read)

    def env(self, task: Task) -> GameEnv:
        return GameEnv(self._config, task)

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """Good actions, or in a share `demo_error_rate` of the seeds random ones."""
        rng, play = self._config.drawn_for(task, seed), self._config.start(task.record["seed"])
        mistaken = rng.random() < self._config.demo_error_rate
        messages = list(self.env(task).first_messages())
        while not play.over and len(messages) < 2 * self.max_turns:
            if len(messages) > 1:
                messages.append(Message(role="user", content=play.seen))
            action = rng.choice(GAMES[self._config.game].actions) if mistaken else play.advise()
            play.take(action)
            messages.append(Message(role="assistant", content=action))
        return Demonstration(task=task, messages=tuple(messages))

    def _make(self, count: int, held_out: bool) -> Iterable[Task]:
        config, tasks = self._config, dict[object, Task]()
        for seed in range(config.seed * 2**32, config.seed * 2**32 + TRIES * count):
            observation = config.start(seed).seen
            if is_held_out(observation) == held_out:
                task = Task(task_id=f"{config.game}-{seed}", question=observation, record={"seed": seed})
                tasks.setdefault(seed if GAMES[config.game].draws else observation, task)
            if len(tasks) == count:
                return tasks.values()
        key = "env.held_out_tasks" if held_out else "env.train_tasks"
        raise BadInput(key=key, found=count, expected=f"at most {len(tasks)}: {config.game} has no more different ones")

    def _read(self, source: str, **how: Any) -> Iterable[Task]:
        for record in read_records(source, **how):
            seed = record.fields.get("seed")
            if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
                raise BadInput(where=record.where, key='"seed"', found=seed, expected="a whole number, 0 or more")
            yield record.task(self._config.start(seed).seen, ())


class GameEnv:
    """One game: its state is gymnasium's."""

    stop_strings: Sequence[str] = ()  # the model ends its message itself

    def __init__(self, config: GamesConfig, task: Task) -> None:
        self._play, self._actions = config.start(task.record["seed"]), GAMES[config.game].actions
        self._names = f"one of {', '.join(self._actions)}"
        rules = f"{GAMES[config.game].rules}\nEnd each message with an action: {self._names}."
        parts = filter(None, [rules if config.instruction is None else config.instruction, self._play.seen])
        self._prompt = (Message(role="user", content="\n".join(parts)),)

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        action = "".join(text.split()[-1:]).strip(MARKS).lower()
        valid = action in self._actions
        metrics = {CALLS: 1.0, VALID: float(valid), "points": self._play.take(action) if valid else 0.0}
        if self._play.over or turns_left <= 0:
            end = EpisodeEnd.ANSWERED if self._play.over else EpisodeEnd.TURN_LIMIT
            return Step(end=end, metrics=metrics)
        content = self._play.seen if valid else f"That is no action. Expected {self._names}."
        return Step(reply=Message(role="user", content=content), metrics=metrics)

    def final_state(self) -> Mapping[str, Any]:
        """For the reward: {"won": true, "points": 1.0}."""
        return {"won": self._play.won, "points": self._play.points}
