"""A user's reward functions are tried before anything starts; a run that has begun with them is told, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from envs.rewards.functions import FunctionsRewardConfig
from envs.rewards.trial import try_functions_once
from rlsys.config.identity import config_key
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.types import Task


def try_functions_of(
    scored: Iterable[tuple[RecipeConfig, Sequence[Task]]], warn: Callable[[str], None] | None = None
) -> None:
    """Each reward on tasks that it scores. warn: called with a warning where a run is continued; without it a function
    that does not pass is refused, with BadInput."""
    pairs = {(config_key(case.reward), config_key(case.env)): (case.reward, tasks) for case, tasks in scored if tasks}
    for (_, source), (reward, tasks) in pairs.items():
        if not isinstance(reward, FunctionsRewardConfig):
            continue
        try:
            try_functions_once(reward, tasks, source)
        except BadInput as error:
            if warn is None:
                raise
            warn(f"warning: {error}; the run was begun with it, and goes on")
