"""What follows from a configuration, for `--dry-run`."""

from __future__ import annotations

from envs import make_world
from launch.run import preflight
from launch.stages.datasets import described
from launch.stages.generate import tasks_to_generate
from launch.stages.rules import training_tasks
from rlsys.config import RunConfig, StageConfig


def arithmetic(config: RunConfig) -> list[str]:
    """The numbers that follow from others, and how."""
    recipe = config.recipe
    lines = []
    count = preflight.parameters(recipe)
    if count is not None:
        lines.append(f"parameters                {count:,}")
    for stage in config.stages:
        lines += [f"{stage.name + ' (' + stage.kind + ')':<25} {fact}" for fact in stage_arithmetic(config, stage)]
    plan = preflight.memory_plan(recipe, learner=True)
    return lines + [f"{'memory (CPU)':<25} {line}" for line in plan.lines]


def stage_arithmetic(config: RunConfig, stage: StageConfig) -> list[str]:
    loop, generate = stage.config.loop, stage.config.generate
    if stage.kind == "generate":
        tasks = len(tasks_to_generate(make_world(stage.config.env), stage.config))
        return [f"trajectories = {tasks} tasks x {generate.samples} = {tasks * generate.samples}"]
    if stage.epochs is not None:
        steps = f"steps = {stage.epochs:g} epochs x examples / {loop.groups_per_step}, rounded up"
        return [described(config, stage), steps]
    total = stage.steps * loop.groups_per_step
    product = f"{stage.steps} steps x {loop.groups_per_step} = {total}"
    if stage.data is not None:
        return [described(config, stage), f"drawn = {product}"]
    tasks = len(training_tasks(stage.kind, stage.config.env))
    facts = [f"tasks = {product} ({total / tasks:.2f} epochs of {tasks})"]
    if stage.kind == "rl":
        episodes = loop.groups_per_step * loop.group_size
        facts += [
            f"trajectories per step = {loop.groups_per_step} groups x {loop.group_size} = {episodes}",
            f"slots = {loop.groups_per_step} x (1 + lag {loop.max_policy_lag}) = {loop.slots} groups open",
        ]
    return facts
