"""Environments and rewards. A new environment is one file in `envs/worlds` and one line in WORLDS."""

from __future__ import annotations

from typing import Any

from envs.base import World
from envs.framed import add_system
from envs.mixture import MixtureConfig, MixtureWorld
from envs.rewards import REWARDS, make_reward
from envs.tasks.splits import defer_reading
from rlsys.choices import Table, construct
from rlsys.config.identity import config_key

__all__ = ["REWARDS", "WORLDS", "make_reward", "make_world", "new_player", "new_world"]

WORLDS: Table = {
    "calculator": "envs.worlds.calculator.CalculatorWorld",
    "search_qa": "envs.worlds.search.SearchQAWorld",
    "python_math": "envs.worlds.python.PythonMathWorld",
    "questions": "envs.worlds.questions.QuestionsWorld",
    "pairs": "envs.papers.long_cot.world.PairsWorld",
    "prompts": "envs.worlds.prompts.PromptsWorld",
    "reasoning_gym": "envs.worlds.reasoning_gym.ReasoningGymWorld",
    "games": "envs.worlds.games.GamesWorld",
    "graph": "envs.papers.graph_rl.world.GraphWorld",
    "tools": "envs.worlds.tools.ToolsWorld",
    "blocksworld": "envs.papers.graph_rl.blocks.world.BlocksworldWorld",
    "agent": "envs.worlds.agent.AgentWorld",
}


MAX_WORLDS = 16  # remembered: those of a run's stages, and of their evaluations
made_worlds: dict[str, World] = {}


def make_world(config: Any) -> World:
    """The world of a config, made once in this process: for those who read its tasks and do not close it.

    A data file that is rewritten while the process runs is not read again.
    """
    key = config_key(config)
    if key not in made_worlds:
        if len(made_worlds) >= MAX_WORLDS:
            del made_worlds[next(iter(made_worlds))]
        made_worlds[key] = new_world(config)
    return made_worlds[key]


def new_world(config: Any) -> World:
    """A separate world, to play in and to close. Raises BadInput for a `config.name` that is not in WORLDS."""
    if isinstance(config, MixtureConfig):
        return MixtureWorld(config, new_world)
    world: World = construct("env", WORLDS, config)
    return add_system(world, config)


def new_player(config: Any) -> World:
    """The same for a player that receives its tasks: those of `split` are not read, nor need they be here."""
    with defer_reading():
        return new_world(config)
