"""Environments and rewards. A new environment is one file in `envs/worlds` and one line in WORLDS."""

from __future__ import annotations

from typing import Any

from envs.base import World
from envs.rewards import REWARDS, make_reward
from rlsys.choices import Table, construct

__all__ = ["REWARDS", "WORLDS", "make_reward", "make_world"]

WORLDS: Table = {
    "calculator": "envs.worlds.calculator.CalculatorWorld",
    "search_qa": "envs.worlds.search.SearchQAWorld",
    "python_math": "envs.worlds.python.PythonMathWorld",
    "questions": "envs.worlds.questions.QuestionsWorld",
    "graph": "envs.worlds.graph.GraphWorld",
    "blocksworld": "envs.worlds.blocksworld.BlocksworldWorld",
}


def make_world(config: Any) -> World:
    """The world that `config.name` picks, built from `config`. Raises BadInput for a name that is not in WORLDS."""
    world: World = construct("env", WORLDS, config)
    return world
