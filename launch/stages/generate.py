"""The `generate` stage: trajectories to train on later, played with the weights as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from actors.pool import RolloutPool
from actors.services import Services
from envs.base import World
from launch.run import wire
from launch.run.evaluate import rollout_each
from launch.run.progress import Progress
from launch.run.run import Run
from launch.run.run_dirs import without_places
from launch.stages.delivery import first_delivery
from launch.stages.store import TrajectoryStore, store_path, write_out
from launch.stages.trajectories import group_record, tokenizer_id, weights_id
from rlsys.config import RecipeConfig, StageConfig
from rlsys.harvest import check_failed
from rlsys.rollout import RolloutPlan
from rlsys.types import Failure, Group, Task

FEW = 64  # trajectories: fewer say nothing yet about the share that fails


async def generate_stage(run: Run, stage: StageConfig) -> None:
    """Every training task is played; `generated/NAME.jsonl` is what is kept of it. A resumed run plays the rest."""
    recipe = stage.config
    tasks = tasks_to_generate(run.world, recipe)
    output, tokenizer = run.dir.generated(stage.name), tokenizer_id(run.renderer)
    await run.begin_stage(stage)
    weights = f"step {run.state.step} ({await asyncio.to_thread(weights_id, run.saved_model)})"
    played = TrajectoryStore(store_path(output), begun_with(recipe, weights, tokenizer))
    try:
        if any(sequence not in played for sequence in range(len(tasks))):
            await first_delivery(run)
            plan = plan_of(recipe, f"generate-{stage.name}", run.services)
            await run.until(generate_missing(run.pool, tasks, plan, recipe, played, tokenizer, run.progress))
            await run.until(run.pool.status())  # the account of generated tokens
        counts = await asyncio.to_thread(write_out, played, output, recipe, len(tasks))
    finally:
        played.close()
    run.state.played[stage.name] = counts.row()
    run.progress.say(f"stage {stage.name}: {counts.told()}")


def tasks_to_generate(world: World, recipe: RecipeConfig) -> Sequence[Task]:
    return world.tasks("train")[: recipe.generate.tasks]


def plan_of(recipe: RecipeConfig, purpose: str, services: Services) -> RolloutPlan:
    config = recipe.generate
    plan = wire.rollout_plan(
        recipe, purpose, group_size=config.samples, temperature=config.temperature, services=services
    )
    return replace(plan, top_p=config.top_p)


def begun_with(recipe: RecipeConfig, weights: str, tokenizer: str) -> dict[str, Any]:
    """What trajectories of one file have in common: how they were played, and by whom. Filters may change."""
    config = recipe.generate
    common: dict[str, Any] = {"weights": weights, "tokenizer": tokenizer, "seed": recipe.seed}
    common |= {f"generate.{key}": getattr(config, key) for key in ("samples", "temperature", "top_p")}
    common |= {f"rollout.{key}": getattr(recipe.rollout, key) for key in ("max_turn_tokens", "max_response_tokens")}
    common |= {"engine.max_model_len": recipe.engine.max_model_len}
    for key, part in (("env", recipe.env), ("reward", recipe.reward)):
        common |= {f"{key}.{name}": value for name, value in without_places(asdict(part)).items()}
    return common


async def generate_missing(
    pool: RolloutPool,
    tasks: Sequence[Task],
    plan: RolloutPlan,
    recipe: RecipeConfig,
    played: TrajectoryStore,
    tokenizer: str,
    progress: Progress,
) -> None:
    """Play the tasks that are not in `played` yet. One of which nothing could be graded is left for the next time.

    Raises RunFailed where more than `loop.max_failed_share` of the trajectories are failures: of the tasks that are
    played for the first time while they are played; at the end all that failed in this process, of all tasks.
    """
    missing = [(sequence, task) for sequence, task in enumerate(tasks) if sequence not in played]
    already = f", {len(tasks) - len(missing)} of them already" if len(missing) < len(tasks) else ""
    progress.say(f"playing {len(tasks)} tasks x {plan.group_size} at temperature {plan.temperature:g}{already}")
    again = frozenset(played.tried)  # tasks that fail whoever plays them must not stop what is left, or the filters
    failed: list[Failure] = []
    failed_first: list[Failure] = []
    limit, played_first, done = recipe.loop.max_failed_share, 0, 0

    def finished(group: Group) -> None:
        nonlocal played_first, done
        broken = [each.reward for each in group.trajectories if isinstance(each.reward, Failure)]
        failed.extend(broken)
        played.add(group_record(group, tokenizer))
        done += 1
        if group.ticket.sequence not in again:
            failed_first.extend(broken)
            played_first += plan.group_size
        if played_first >= FEW:
            check_failed(failed_first, played_first, limit, "trajectories")
        if done == len(missing):
            check_failed(failed, len(tasks) * plan.group_size, limit, "trajectories")
        progress.count(len(tasks) - len(missing) + done, len(tasks))

    await rollout_each(pool, missing, plan, recipe.generate.concurrency, finished)
