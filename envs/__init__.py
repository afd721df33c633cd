"""Environments and rewards. A new environment is one file here and one line in WORLDS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envs.base import World
from envs.calculator import CalculatorConfig, CalculatorWorld
from envs.rewards import REWARDS, make_reward
from rlsys.config import construct

__all__ = ["REWARDS", "WORLDS", "make_reward", "make_world"]

WORLDS: dict[str, tuple[type[Any], Callable[[Any], World]]] = {
    "calculator": (CalculatorConfig, CalculatorWorld),
}


def make_world(config: Any) -> World:
    """The world that `config.name` picks, built from `config`. Raises BadInput for a name that is not in WORLDS."""
    world: World = construct("env", WORLDS, config)
    return world
