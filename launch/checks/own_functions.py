"""A user's reward functions are tried before anything starts; a run that has begun with them is told, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from envs.rewards.functions import FunctionsRewardConfig
from envs.rewards.trial import try_once
from rlsys.config.identity import config_key
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.types import Task


def try_functions_of(
    scored: Iterable[tuple[RecipeConfig, Sequence[Task]]], begun: Callable[[str], None] | None = None
) -> None:
    """Each reward on tasks that it scores. begun: what tells a run that is continued; without it a function that does
    not pass is refused, with BadInput."""
    asked = {(config_key(each.reward), config_key(each.env)): (each.reward, tasks) for each, tasks in scored if tasks}
    for (_, source), (reward, tasks) in asked.items():
        if not isinstance(reward, FunctionsRewardConfig):
            continue
        try:
            try_once(reward, tasks, source)
        except BadInput as error:
            if begun is None:
                raise
            begun(f"warning: {error}; the run was begun with it, and goes on")
