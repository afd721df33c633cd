"""Environments and rewards. A new environment is one file here and one line in WORLDS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envs.base import World
from envs.rewards import REWARDS, make_reward
from envs.worlds.blocksworld import BlocksworldConfig, BlocksworldWorld
from envs.worlds.calculator import CalculatorConfig, CalculatorWorld
from envs.worlds.graph import GraphConfig, GraphWorld
from envs.worlds.python import PythonMathConfig, PythonMathWorld
from envs.worlds.questions import QuestionsConfig, QuestionsWorld
from envs.worlds.search import SearchQAWorld
from envs.worlds.search_config import SearchQAConfig
from rlsys.config import construct

__all__ = ["REWARDS", "WORLDS", "make_reward", "make_world"]

WORLDS: dict[str, tuple[type[Any], Callable[[Any], World]]] = {
    "calculator": (CalculatorConfig, CalculatorWorld),
    "search_qa": (SearchQAConfig, SearchQAWorld),
    "python_math": (PythonMathConfig, PythonMathWorld),
    "questions": (QuestionsConfig, QuestionsWorld),
    "graph": (GraphConfig, GraphWorld),
    "blocksworld": (BlocksworldConfig, BlocksworldWorld),
}


def make_world(config: Any) -> World:
    """The world that `config.name` picks, built from `config`. Raises BadInput for a name that is not in WORLDS."""
    world: World = construct("env", WORLDS, config)
    return world
