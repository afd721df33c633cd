"""The `sft` kind: supervised training on the environment's demonstrations, or on the answers of a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from cachetools import LRUCache, cached

from actors.renderer import ChatRenderer
from envs import MAX_WORLDS, make_world
from envs.base import World, find_demonstrable
from envs.mixture import config_of
from launch.driver.run.run import Run
from launch.driver.stages import supervised
from launch.driver.stages.base import StageKeys, maker_of
from launch.driver.stages.datasets import DataStage, Parse
from launch.driver.stages.own_prompts import check_other_prompts, check_own_prompts, prompts_differ, under_own_prompts
from launch.driver.stages.reads import DEMONSTRATIONS, EXAMPLES, Keys
from launch.driver.stages.supervised import make_sample, measure_after
from learners.algorithms import ALGORITHMS
from rlsys.config.envs import name_task
from rlsys.config.identity import config_key
from rlsys.config.recipe import DataSource, RecipeConfig, RunConfig, StageConfig
from rlsys.curriculum import Uniform
from rlsys.errors import BadInput
from rlsys.examples import read_answer
from rlsys.mixed_curriculum import MixedCurriculum, weights_of
from rlsys.rollout import template_args_of, tool_offer_of
from rlsys.seeds import Epochs, derive_seed
from rlsys.types import Sample, Task


class SFT(DataStage):
    nothing_made = "nothing passed generate.keep and generate.min_reward"
    parse = staticmethod(read_answer)
    mixes = True
    own_prompts = True
    reads = EXAMPLES

    def reads_here(self, head: StageKeys, recipe: RecipeConfig) -> Keys:
        keys = DEMONSTRATIONS if head.data is None else EXAMPLES
        return keys if recipe.algorithm.name in ALGORITHMS else (*keys, "learner")  # it may have a critic

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        name = recipe.algorithm.name
        if name in ALGORITHMS and name != "sft":
            raise BadInput(where=where, key="algorithm.name", found=name, expected="'sft' in an sft stage")
        super().check(where, head, recipe)
        check_own_prompts(where, head.prompts, recipe, data=head.data is not None)

    def parse_of(self, stage: StageConfig) -> Parse:
        return self.parse if stage.prompts is None else under_own_prompts(self.parse, stage.config)

    def epoch(self, recipe: RecipeConfig, data: DataSource | None) -> int:
        tasks = _find_demonstrations(recipe.env)[0] if data is None else []
        return len(tasks) or super().epoch(recipe, data)  # `ready` refuses tasks of which none can be shown

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        super().ready(config, stage)
        maker = maker_of(config, stage)
        if stage.prompts is not None and maker is not None and maker.kind == "generate":
            check_other_prompts(f"stages.{stage.name}", maker.config, stage.config)
        if stage.data is None:
            for name, recipe in stage.config.by_env.items():
                demonstrable_tasks(stage.name, recipe, name)

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        maker, lines = maker_of(config, stage), super().arithmetic(config, stage)
        if stage.prompts is not None:
            return [*lines, "prompts = those of this stage's environment; what follows them stays as it was sampled"]
        if maker is not None and maker.kind == "generate" and prompts_differ(maker.config, stage.config):
            return [
                *lines,
                f"prompts = those that stage {maker.name} plays; prompts=env: those of this stage's own env",
            ]
        return lines

    def example(self, config: RunConfig, stage: StageConfig, renderer: ChatRenderer) -> list[Sample]:
        if stage.data is not None:
            return supervised.first_samples(self, config, stage, renderer)
        task_of, _, _ = demonstration_schedule(stage)
        return [demonstrate(make_world(stage.config.env), renderer, stage, task_of(0), 0)]

    async def run(self, run: Run, stage: StageConfig) -> None:
        stage = await (from_demonstrations(run, stage) if stage.data is None else from_data(run, stage, self))
        await measure_after(run, stage)


async def from_data(run: Run, stage: StageConfig, kind: DataStage) -> StageConfig:
    training = await supervised.begin_with_data(run, stage, kind, "supervised steps of {} answers")
    apart = await asyncio.to_thread(training.fitting, training.data.held_out, "held-out answers")
    held_out = [sample for answers in apart for sample in answers[0]]

    def prepare(stage_step: int) -> supervised.Prepared:
        examples, left_out = training.draw_examples(stage_step)
        samples = [sample for answers in examples for sample in answers[0]]
        return supervised.Prepared(samples, metrics={"data/too_long": left_out})

    loss = partial(supervised.answer_loss, run.learner, held_out) if held_out else None
    await supervised.train_steps(run, training.stage, prepare, loss)
    return training.stage


async def from_demonstrations(run: Run, stage: StageConfig) -> StageConfig:
    task_of, tasks, left_out = demonstration_schedule(stage)
    count = stage.config.loop.groups_per_step
    await run.begin_stage(stage)
    run.begin("stage", f"stage {stage.name}: {stage.steps} supervised steps of {count} demonstrations")
    if left_out:
        run.progress.say(f"{len(left_out)} of {tasks + len(left_out)} tasks have no demonstration: {left_out[0]} ...")

    def prepare(stage_step: int) -> supervised.Prepared:
        sequences = range(stage_step * count, (stage_step + 1) * count)
        samples = [demonstration(run, stage, task_of(sequence), sequence) for sequence in sequences]
        return supervised.Prepared(samples)

    held_out = held_out_demonstrations(run, stage) if stage.config.eval.every else []
    loss = partial(supervised.answer_loss, run.learner, held_out) if held_out else None
    await supervised.train_steps(run, stage, prepare, loss)
    return stage


def demonstrable_tasks(stage: str, recipe: RecipeConfig, name: str = "") -> tuple[list[Task], list[str]]:
    """The training tasks that the recipe's world can demonstrate, and why it cannot the others. Raises BadInput.

    name: of one environment of several, which stands in the tasks' ids.
    """
    tasks, left_out = _find_demonstrations(recipe.env)
    if not tasks:
        where = f"stages.{stage}"
        ways = f"leave the stage out with {where}=null, or give it answers with {where}.data=F.jsonl"
        of = f" of envs.{name}" * bool(name)
        raise BadInput(f"no training task{of} has a demonstration; the first: {left_out[0]}; {ways}", where=where)
    return [replace(task, task_id=name_task(name, task.task_id)) for task in tasks], left_out


def demonstration_schedule(stage: StageConfig) -> tuple[Callable[[int], Task], int, list[str]]:
    """The function from sequence number to demonstrated task, the number of tasks, and why others are left out."""
    seed = derive_seed(stage.config.seed, stage.name)
    if not stage.config.envs:
        tasks, left_out = demonstrable_tasks(stage.name, stage.config)
        order = Epochs(tasks, seed=seed)
        return lambda sequence: order.draw(sequence)[1], len(tasks), left_out
    by_env = {name: demonstrable_tasks(stage.name, recipe, name) for name, recipe in stage.config.by_env.items()}
    parts = {name: Uniform(tasks, seed=derive_seed(seed, name)) for name, (tasks, _) in by_env.items()}
    mixed = MixedCurriculum(parts, weights_of(stage.config.envs))
    every = sum(len(tasks) for tasks, _ in by_env.values())
    return (
        lambda sequence: mixed.draw(sequence).task,
        every,
        [why for _, left_out in by_env.values() for why in left_out],
    )


@cached(LRUCache(MAX_WORLDS), key=config_key)
def _find_demonstrations(env: Any) -> tuple[list[Task], list[str]]:
    """Asked for by the plan, the checks and the stage, and thousands of tasks take a while. Not to be changed."""
    return find_demonstrable(make_world(env))


def demonstration(run: Run, stage: StageConfig, task: Task, sequence: int) -> Sample:
    """One worked episode: a function of the seed and the sequence number alone."""
    return demonstrate(run.active.world, run.renderer, stage, task, sequence)


def demonstrate(world: World, renderer: ChatRenderer, stage: StageConfig, task: Task, sequence: int) -> Sample:
    episode = world.demonstration(task, derive_seed(stage.config.seed, "demonstration", sequence))
    env = episode.env or world.env(task)
    ids, mask = renderer.under(template_args_of(config_of(stage.config.env, task))).demonstration(
        episode.messages, len(env.first_messages()), env.stop_strings, offer=tool_offer_of(env)
    )
    return make_sample(ids, mask)


def held_out_demonstrations(run: Run, stage: StageConfig) -> list[Sample]:
    samples: list[Sample] = []
    for sequence, task in enumerate(run.active.world.tasks("held_out")[: stage.config.eval.tasks]):
        with contextlib.suppress(BadInput):  # this one cannot be demonstrated
            samples.append(demonstration(run, stage, task, sequence))
    return samples
