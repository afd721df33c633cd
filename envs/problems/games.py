"""Three games of gymnasium as text: their rules, what is seen of them, and an action that is good."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map
from gymnasium.envs.toy_text.taxi import MAP, TaxiEnv

PLACES = ("R", "G", "Y", "B")  # of Taxi, in gymnasium's order


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    actions: tuple[str, ...]  # in gymnasium's order
    rules: str
    make: Callable[[int, int, float], Any]  # of a seed, a size, and the probability of a hole
    show: Callable[[Any, Any], str]  # of gymnasium's environment and what it observes
    advise: Callable[[Any, Any], int]  # number of a good action
    draws: bool = False  # later chance is no part of what is seen first


class Play:
    """A game from its start; `take` goes on while it is not over."""

    def __init__(self, game: Game, seed: int, size: int, holes: float) -> None:
        self._game, self._env = game, game.make(seed, size, holes)
        self._observed, _ = self._env.reset(seed=seed)
        self.points, self.over, self.won = 0.0, False, False

    @property
    def seen(self) -> str:
        return self._game.show(self._env, self._observed)

    def advise(self) -> str:
        return self._game.actions[self._game.advise(self._env, self._observed)]

    def take(self, action: str) -> float:
        """The points that the game gives for it. A game is won whose last action has some."""
        self._observed, reward, self.over, *_ = self._env.step(self._game.actions.index(action))
        points = float(reward)
        self.points, self.won = self.points + points, self.over and points > 0
        return points


def begin_shortest_way(env: Any, state: int) -> int:
    """Breadth-first search in the table of an environment without chance, for an action that wins."""
    ways, visited = deque([(int(state), -1)]), {int(state)}
    while ways:
        at, first = ways.popleft()
        for action, [(_, after, reward, over)] in env.P[at].items():
            begins = action if first < 0 else first
            if over and reward > 0:
                return int(begins)
            if not over and after not in visited:
                visited.add(after)
                ways.append((after, begins))
    raise ValueError(f"nothing wins from state {state}")


def make_lake(seed: int, size: int, holes: float) -> FrozenLakeEnv:
    return FrozenLakeEnv(desc=generate_random_map(size=size, p=1 - holes, seed=seed), is_slippery=False)


def show_lake(env: Any, state: int) -> str:
    squares = [square.decode() for square in env.desc.flat]
    squares[state] = "P"
    return "\n".join(" ".join(squares[row : row + env.ncol]) for row in range(0, len(squares), env.ncol))


make_taxi = cache(TaxiEnv)  # its table takes milliseconds, and is the same for all


def show_taxi(env: Any, state: int) -> str:
    row, column, passenger, to = env.decode(state)
    where = f"at {PLACES[passenger]}" if passenger < len(PLACES) else "in the taxi"
    return f"Taxi in row {row}, column {column}. Passenger {where}, wants to {PLACES[to]}."


def show_hand(_: Any, observation: tuple[int, int, int]) -> str:
    total, dealer, ace = observation
    return f"You have {total}{' with an ace as 11' if ace else ''}. The dealer shows {dealer}."


GAMES = {
    "frozen_lake": Game(
        actions=("left", "down", "right", "up"),
        rules="Walk over the ice to G. F is frozen, H is a hole, S is the start, P is where you are.",
        make=make_lake,
        show=show_lake,
        advise=begin_shortest_way,
    ),
    "taxi": Game(
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        rules="Fetch the passenger and bring them where they want to go. Rows and columns count from 0, top left; "
        "| is a wall.\n" + "\n".join(MAP),
        make=lambda seed, size, holes: copy(make_taxi()),
        show=show_taxi,
        advise=begin_shortest_way,
    ),
    "blackjack": Game(
        actions=("stick", "hit"),
        rules="Come nearer to 21 than the dealer and not above it. Pictures count 10, an ace 1 or 11.",
        make=lambda seed, size, holes: BlackjackEnv(),
        show=show_hand,
        advise=lambda env, observation: int(observation[0] < 17),
        draws=True,
    ),
}
