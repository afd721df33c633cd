"""Environments and rewards. A new environment is one file here and one line in WORLDS."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from envs.base import World
from envs.calculator import CalculatorConfig, CalculatorWorld
from envs.rewards import REWARDS, make_reward
from rlsys.errors import BadInput

__all__ = ["REWARDS", "WORLDS", "make_reward", "make_world"]

WORLDS: dict[str, tuple[type[Any], Callable[[Any], World]]] = {
    "calculator": (CalculatorConfig, CalculatorWorld),
}


def make_world(config: Any) -> World:
    """The world that `config.name` picks, built from `config`. Raises BadInput for a name that is not in WORLDS."""
    if config.name not in WORLDS:
        nearest = get_close_matches(str(config.name), WORLDS, n=1, cutoff=0.0)[0]
        raise BadInput(f"env.name={config.name!r}: expected one of {', '.join(WORLDS)}; nearest is {nearest}")
    return WORLDS[config.name][1](config)
