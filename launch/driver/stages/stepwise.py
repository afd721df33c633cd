"""The `stepwise` kind: SWiRL's second stage (arXiv 2504.04736, section 2.2).

The states of recorded trajectories are the tasks of the `rl` loop: in each a new action is sampled, judged by
itself, and learnt from. No tool is called. Evaluations during the stage play its own environment, with its tools.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from envs import make_world
from envs.papers.swirl.world import StatesConfig
from envs.protocols import PROTOCOLS
from launch.driver.run.run import Run
from launch.driver.stages.base import StageKeys, maker_of, steps_for
from launch.driver.stages.datasets import verdicts_identity
from launch.driver.stages.reads import LOOP
from launch.driver.stages.rl import RL
from rlsys.config.recipe import DataSource, RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed


class Stepwise(RL):
    algorithm = "swirl"
    reads = ("verdicts", "curriculum.name", *LOOP)  # states have no levels: `check` says so

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        if not isinstance(head.data, str) or not head.data:
            source = "the name of a judge or generate stage, or a path"
            raise BadInput(
                key=f"{where}.data", found=head.data, expected=f"{source}: trajectories whose states are trained on"
            )
        if recipe.curriculum.name != "uniform":
            raise BadInput(
                where=where,
                key="curriculum.name",
                found=recipe.curriculum.name,
                expected="uniform: states have no levels",
            )
        if isinstance(getattr(recipe.env, "tools", None), list):
            expected = "an environment with one tool and a protocol of tags, such as calculator"
            raise BadInput(where=where, key="env.name", found=recipe.env.name, expected=expected)
        protocol = PROTOCOLS.get(getattr(recipe.env, "protocol_name", ""))
        resets = getattr(recipe.env, "resets_context", False)
        if protocol is not None and (protocol.inline is not None or resets):
            how = "start new contexts" if resets else "answer inside of the model's turn"
            name = f"{where}: the tools of protocol {protocol.name} {how}"
            raise BadInput(f"{name}, where no state ends", expected="env.protocol=swirl, or env.name=calculator")
        super().check(where, replace(head, data=None), recipe)

    def epoch(self, recipe: RecipeConfig, data: DataSource | None) -> int:
        return len(make_world(states_of(recipe, str(data))).tasks("train"))

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        if maker_of(config, stage) is None:
            self.epoch(stage.config, stage.data)

    def identity(self, stage: StageConfig) -> dict[str, Any]:
        return super().identity(stage) | {"data": stage.data} | verdicts_identity(stage)

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        loop, maker = stage.config.loop, maker_of(config, stage)
        actions = loop.groups_per_step * loop.group_size
        if maker is not None:
            states = f"of what stage {maker.name} leaves: known when it is over"
        else:
            states = f"{self.epoch(stage.config, stage.data)} of {stage.data}"
        steps = f"{stage.steps}" if stage.epochs is None else f"{stage.epochs:g} epochs of the states"
        return [
            f"states = {states}, verdicts.keep={stage.config.verdicts.keep}",
            f"actions per step = {loop.groups_per_step} states x {loop.group_size} = {actions}, steps = {steps}",
            self.evaluations(stage),
            f"slots = {loop.groups_per_step} x (1 + lag {loop.max_policy_lag}) = {loop.slots} states open",
        ]

    async def run(self, run: Run, stage: StageConfig) -> None:
        from launch.driver.stages.rl_loop import rl_loop  # Ray and torch behind it: the keys are checked without

        maker = maker_of(run.config, stage)
        data = str(stage.data) if maker is None else str(run.dir.generated_path(maker.name))
        states = states_of(stage.config, data)
        try:
            run.active.world = await asyncio.to_thread(make_world, states)
            count = len(run.active.world.tasks("train"))
        except BadInput as error:
            raise RunFailed(f"stages.{stage.name}: {error}") from error
        if stage.epochs is not None:
            steps = steps_for(stage.epochs, count, stage.config.loop.groups_per_step)
            stage = replace(stage, steps=steps, epochs=None)
        run.progress.say(f"stage {stage.name}: {count} states of {data}")
        await rl_loop(run, stage, env=states)


def states_of(recipe: RecipeConfig, data: str) -> StatesConfig:
    world = make_world(recipe.env)
    return StatesConfig(
        stop=tuple(world.env(world.tasks("train")[0]).stop_strings),
        protocol_name=getattr(recipe.env, "protocol_name", ""),
        data=data,
        verdicts=recipe.verdicts,
        seed=recipe.seed,
    )
