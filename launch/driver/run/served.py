"""A model behind an endpoint: what `rlsys eval --endpoint` plays with, in the place of engines (engines.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from actors.renderer import ChatRenderer
from actors.served import ServedPlays, open_served_player
from launch.checks.deadlines import evaluated_at_once
from launch.driver.observe.progress import Progress
from launch.driver.run import wire
from rlsys.config.recipe import RecipeConfig
from rlsys.config.served import ServedConfig
from rlsys.rollout import RolloutPlan

T = TypeVar("T")


def on_endpoint(
    config: ServedConfig,
    recipe: RecipeConfig,
    renderer: ChatRenderer,
    log: Path,
    progress: Progress,
    work: Callable[[ServedPlays], Awaitable[T]],
    *,
    plans: Sequence[RolloutPlan],
    playing: Sequence[RecipeConfig],
) -> T:
    """Start the tool services that are needed, do `work` with the model, and stop them. Raises BadInput.

    log: what it has answered. plans: how episodes are played. playing: whose tools and judges are needed.
    """

    async def go() -> T:
        services = [service for stage_recipe in playing for service in wire.list_services(stage_recipe)]
        spec = wire.teacher_worlds(recipe, playing, "endpoint")
        together = max(evaluated_at_once(recipe, (), served=True), *(plan.group_size for plan in plans))
        many = {"concurrency": together, "run_seed": recipe.seed}
        progress.doing("starting tools")
        async with open_served_player(config, renderer, spec, services, log=log, **many) as plays:
            return await work(plays)

    return asyncio.run(go())
