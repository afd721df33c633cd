"""`rlsys generate`: trajectories of a checkpoint, on the engines alone."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from actors.renderer import ChatRenderer
from envs import make_world
from envs.services.first_question import check_addresses
from envs.services.teacher import check_ready, check_teacher
from launch.checks import preflight
from launch.checks.agents import refuse_agents
from launch.checks.deadlines import generated_at_once
from launch.checks.machine import expected_device
from launch.checks.own_functions import try_functions_of
from launch.checks.prompts import check_prompts
from launch.checks.service_needs import Load, check_needs, service_needs, with_every_core
from launch.commands.shared import add_checkpoint, add_config
from launch.commands.trained import with_trained_args
from launch.config.compose import compose
from launch.config.mixture import require_one
from launch.driver.observe.progress import Progress, process_start
from launch.driver.run.cleanup import orderly_exit
from launch.driver.stages.addresses import judge_endpoints_of_reward, teacher_endpoints
from launch.driver.stages.base import check_columns
from launch.driver.stages.generate import (
    check_keep,
    generate_missing,
    generate_taught,
    has_pending,
    identify_play,
    plan_of,
    tasks_to_generate,
    weights_of,
)
from launch.driver.stages.store import TrajectoryStore, pairs_path, store_path, write_out
from launch.driver.stages.trajectories import tokenizer_id, weights_id
from rlsys.config.generate import GenerateConfig
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.rollout import template_args_of
from rlsys.types import Task

if TYPE_CHECKING:
    from actors.pool import RolloutPool

HELP = "generate trajectories to train on; the same command continues where it was stopped"
EXAMPLES = """examples:
  rlsys generate quickstart --output tries.jsonl          the last run's answers to the training tasks
  rlsys generate quickstart --output best.jsonl --samples 8 --keep correct
  rlsys generate long_cot --output long.jsonl generate.teacher.endpoint=http://127.0.0.1:8000/v1 \\
      generate.teacher.model=NAME                         another model's answers, from where it is served
"""
FLAGS = {  # each a key of `generate` in the config
    "samples": ("N", "number of trajectories per task"),
    "temperature": ("T", "sampling temperature"),
    "tasks": ("N", "number of training tasks, at most"),
    "keep": ("all|best|correct", "trajectories of a task that are written"),
    "min_reward": ("R", "smallest reward of a trajectory that is written"),
    "per_task": ("K", "number of trajectories written per task, at most"),
}


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "override a key, such as generate.top_p=0.95")
    parser.add_argument(
        "--output",
        metavar="F.jsonl",
        required=True,
        help="file for the kept trajectories; F.pairs.jsonl gets preference pairs, F.played.jsonl all trajectories",
    )
    add_checkpoint(parser)
    usual = GenerateConfig()
    for key, (metavar, meaning) in FLAGS.items():
        default = getattr(usual, key)
        of = f"the config's generate.{key}, or {'no limit' if default is None else default}"
        parser.add_argument(f"--{key.replace('_', '-')}", metavar=metavar, help=f"{meaning} (default: {of})")


def run(options: argparse.Namespace) -> int:
    with Progress(since=process_start()) as progress:
        progress.doing("reading the configuration")
        return generate(options, progress)


def generate(options: argparse.Namespace, progress: Progress) -> int:
    flags = {key: getattr(options, key) for key in FLAGS}
    flag_overrides = [f"generate.{key}={value}" for key, value in flags.items() if value is not None]
    config = compose(options.config, [*options.overrides, *flag_overrides])

    from launch.driver.run import nodes  # Ray behind these two: the help and a wrong key go without
    from launch.driver.run.engines import find_checkpoint, model_or_scratch, on_engines

    progress.doing("reading the checkpoint and the tasks")
    recipe = recipe_to_generate(config)
    require_one(recipe, "rlsys generate knows")
    check_keep("", recipe)
    check_teacher(recipe.generate.teacher)
    if recipe.generate.teacher.given:
        refuse_agents(recipe.env)
        return by_teacher(recipe, options, progress)
    tasks = tasks_to_generate(make_world(recipe.env), recipe)
    policy = find_checkpoint(config.recipe, options.checkpoint)
    recipe = with_trained_args(recipe, options.overrides, policy, progress.say)
    target = output_file(options.output)
    preflight.check(recipe, learner=False)
    nodes.check_rollouts(recipe)
    check_reward(recipe, tasks, target, progress)
    load = Load(episodes=episodes_at_once(recipe))
    check_needs(service_needs([recipe], expected_device(recipe.cluster), load), progress.say)
    ask = partial(check_addresses, list(judge_endpoints_of_reward("reward.judge", recipe)), progress.say)
    if not (begun_before := store_path(target).exists()):  # else it is not yet known whether anything is left to play
        ask()

    async def work(playing: RecipeConfig, pool: RolloutPool) -> None:
        plan = plan_of(playing, "generate")
        await generate_missing(pool, tasks, plan, playing, played, tokenizer, progress)

    with orderly_exit():
        weights = policy or "the untrained policy"
        if policy is None:
            progress.say("no checkpoint and no model.path: the untrained policy plays")
        with model_or_scratch(recipe, policy, options.output) as model:
            renderer = ChatRenderer(model)
            check_prompts(renderer, model, [recipe], progress.say)
            tokenizer = tokenizer_id(renderer.under(template_args_of(recipe.env)))
            identity = identify_play(recipe, f"{weights} ({weights_id(model)})", tokenizer)
            played = TrajectoryStore(store_path(target), identity)
            progress.say(f"the policy is {weights}")
            if has_pending(tasks, played):
                if begun_before:
                    ask()
                on_engines(recipe, model, progress, work, scratch=policy is None)
            else:
                progress.say(f"all {len(tasks)} tasks have been played: {played.path}")
            end(played, target, recipe, len(tasks), progress)
    return 0


def check_reward(recipe: RecipeConfig, tasks: Sequence[Task], target: Path, progress: Progress) -> None:
    """Whether it can score what is played. Raises BadInput, for functions only where nothing has been played yet."""
    check_columns(recipe, tasks)
    try_functions_of([(recipe, tasks)], progress.say if store_path(target).exists() else None)


def by_teacher(recipe: RecipeConfig, options: argparse.Namespace, progress: Progress) -> int:
    """Without engines and without Ray."""
    from launch.driver.run import nodes, wire  # Ray behind these two
    from launch.driver.run.engines import model_or_scratch

    teacher = recipe.generate.teacher
    if options.checkpoint is not None:
        raise BadInput(key="--checkpoint", found=options.checkpoint, expected=f"none, {weights_of(teacher)} plays")
    check_ready(teacher)
    nodes.check_rollouts(recipe)
    load = Load(episodes=episodes_at_once(recipe), workers=1)
    check_needs(service_needs([recipe], with_every_core(expected_device(recipe.cluster)), load), progress.say)
    tasks, target = tasks_to_generate(make_world(recipe.env), recipe), output_file(options.output)
    check_reward(recipe, tasks, target, progress)
    addresses = [*teacher_endpoints(recipe), *judge_endpoints_of_reward("reward.judge", recipe)]
    ask = partial(check_addresses, addresses, progress.say)
    if not (begun_before := store_path(target).exists()):  # else it is not yet known whether anything is left to play
        ask()
    with orderly_exit(), model_or_scratch(recipe, wire.resolved_model_path(recipe), options.output) as model:
        renderer = ChatRenderer(model).under(template_args_of(recipe.env)).usable()
        played = TrajectoryStore(store_path(target), identify_play(recipe, weights_of(teacher), tokenizer_id(renderer)))
        if has_pending(tasks, played):
            if begun_before:
                ask()
            asyncio.run(generate_taught(tasks, plan_of(recipe, "generate"), recipe, played, renderer, progress))
        else:
            progress.say(f"all {len(tasks)} tasks have been played: {played.path}")
        end(played, target, recipe, len(tasks), progress)
    return 0


def episodes_at_once(recipe: RecipeConfig) -> int:
    """One group at least is under way."""
    return max(generated_at_once(recipe), recipe.generate.samples)


def end(played: TrajectoryStore, target: Path, recipe: RecipeConfig, total: int, progress: Progress) -> None:
    """All tasks have been played: what is kept of them is written."""
    counts = write_out(played, target, recipe, total)
    played.close()
    progress.say(counts.describe())
    progress.say(f"wrote {target} and {pairs_path(target)}")


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
            raise BadInput(f"there is a file {place.name} already, and {goes_on}", key="--output", found=output)
    return path
