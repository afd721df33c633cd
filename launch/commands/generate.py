"""`rlsys generate`: trajectories of a checkpoint, on the engines alone."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from actors.renderer import ChatRenderer
from envs import make_world
from launch.commands.eval import find_checkpoint
from launch.commands.train import orderly_exit
from launch.config import compose
from launch.run import engines, preflight, wire
from launch.run.progress import Progress
from launch.stages.generate import begun_with, generate_missing, plan_of, tasks_to_generate
from launch.stages.store import TrajectoryStore, pairs_path, store_path, write_out
from launch.stages.trajectories import tokenizer_id, weights_id
from rlsys.config import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.types import Task


def generate_command(name: str, overrides: list[str], checkpoint: str | None, output: str) -> int:
    config = compose.compose(name, overrides)
    recipe = recipe_to_generate(config)
    tasks = tasks_to_generate(make_world(recipe.env), recipe)
    found = find_checkpoint(config, checkpoint)
    target = output_file(output)
    preflight.check_model_folder(found)
    preflight.check(recipe, learner=False)
    preflight.check_rollouts(recipe)
    with Progress() as progress, orderly_exit() as ended, tempfile.TemporaryDirectory() as scratch:
        weights = found or "the untrained policy"
        if found is None:
            progress.say("no checkpoint and no model.path: the untrained policy plays")
            found = str(Path(scratch) / "model")
            wire.build_scratch_model(recipe, Path(found))
        tokenizer = tokenizer_id(ChatRenderer(found))
        played = TrajectoryStore(store_path(target), begun_with(recipe, f"{weights} ({weights_id(found)})", tokenizer))
        progress.say(f"the policy is {weights}")
        if any(sequence not in played for sequence in range(len(tasks))):
            parts = engines.engines_of(recipe, found)
            asyncio.run(_play(parts, recipe, tasks, played, tokenizer, progress))
        else:
            progress.say(f"all {len(tasks)} tasks have been played: {played.path}")
        counts = write_out(played, target, recipe, len(tasks))
        played.close()
        progress.say(counts.told())
        progress.say(f"wrote {target} and {pairs_path(target)}")
        ended.code = 0
    return ended.code


async def _play(
    parts: engines.Engines,
    recipe: RecipeConfig,
    tasks: Sequence[Task],
    played: TrajectoryStore,
    tokenizer: str,
    progress: Progress,
) -> None:
    await engines.start(parts, progress)
    plan = plan_of(recipe, "generate", parts.services)
    await generate_missing(parts.pool, tasks, plan, recipe, played, tokenizer, progress)
    await engines.stop(parts)


def recipe_to_generate(config: RunConfig) -> RecipeConfig:
    """What holds in the recipe's last generate stage; in its last stage where there is none."""
    generating = [stage for stage in config.stages if stage.kind == "generate"]
    return (generating or config.stages)[-1].config


def output_file(output: str) -> Path:
    """Raises BadInput for a place that cannot be written, or a file that is not this command's."""
    path = preflight.check_output(output)
    for place in (path, pairs_path(path)):
        if place.exists() and not store_path(path).exists():
            goes_on = f"no {store_path(path).name} to continue from"
            raise BadInput(f"--output {output}: there is a file {place.name} already, and {goes_on}")
    return path
