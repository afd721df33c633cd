"""Engines and tool services without a learner: what `rlsys eval` and `rlsys generate` play with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from actors.placement import place
from actors.pool import RolloutPool
from actors.services import Services
from launch.run import wire
from launch.run.cluster import connect
from launch.run.progress import Progress
from rlsys.config import RecipeConfig


@dataclass(frozen=True, slots=True)
class Engines:
    pool: RolloutPool
    services: Services


def engines_of(recipe: RecipeConfig, model_path: str) -> Engines:
    """Connects to Ray. Nothing is started yet."""
    services = wire.services([recipe])
    device = connect(
        recipe.cluster,
        cpus_needed=recipe.rollout.workers * recipe.rollout.threads + len(services.needs),
        gpus_needed=recipe.rollout.workers + services.engines,
    )
    services.gpus_per_engine = device.gpus_per_actor
    return Engines(wire.pool(recipe, device, model_path, services.token, wire.secrets_of([recipe])), services)


async def start(engines: Engines, progress: Progress) -> None:
    """The engines serve the weights of the folder that they were started from."""
    pool, services = engines.pool, engines.services
    progress.say(f"starting {len(pool.needs)} rollout worker(s)")
    placement = await place(pool.needs + services.needs)
    await asyncio.gather(pool.start(placement[: len(pool.needs)]), services.start(placement[len(pool.needs) :]))
    await pool.adopt()


async def stop(engines: Engines) -> None:
    await asyncio.gather(engines.pool.stop(), engines.services.stop())
