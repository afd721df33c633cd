"""The `rl` kind: reinforcement learning on the environment's tasks. Its loop is in `launch.stages.rl_loop`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from envs import make_world
from envs.rewards import traits_of
from launch.evaluation.sets import plays_of
from launch.run.run import Run
from launch.stages.base import Stage, StageKeys, check_judge, check_response_length, check_tags
from launch.stages.marks import check_marks
from launch.stages.reads import LOOP
from learners.algorithms import ALGORITHMS, make_algorithm
from rlsys.choices import choose
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.curriculum import levels
from rlsys.errors import BadInput
from rlsys.summaries import ever_lacks, never_has


class RL(Stage):
    algorithm = "grpo"
    recipe_algorithm = True
    plays = True
    reads = ("curriculum", *LOOP)

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        algorithm: Any = recipe.algorithm
        if isinstance(algorithm, choose("algorithm", ALGORITHMS, "dpo").schema):
            raise BadInput(
                f"{where}: algorithm.name='dpo' in an rl stage, which makes no preference pairs: "
                "expected a generate stage, and then one of kind dpo with its name as data"
            )
        if reason := traits_of(recipe.reward).evaluates_only:
            raise BadInput(f"{where}: {reason}")
        _check_streams(where, recipe)
        _check_signal(where, recipe)
        recipe.window.check(where, recipe)
        if recipe.rollout.top_p != 1.0:
            raise BadInput(
                f"{where}: rollout.top_p={recipe.rollout.top_p:g}: expected 1 in an rl stage, where the engine's "
                "log-probabilities would be of the cut distribution and the learner's of the whole one"
            )
        check_response_length(where, recipe)
        check_tags(where, recipe)
        check_marks(where, recipe)
        check_judge(where, recipe)
        every, saved = recipe.eval.every, recipe.checkpoint.every
        if recipe.checkpoint.best is not None and every % saved:
            raise BadInput(
                f"{where}: eval.every={every} with checkpoint.best={recipe.checkpoint.best!r}: expected a multiple of "
                f"checkpoint.every={saved}, since only what was saved can be kept"
            )
        if head.data is not None:
            raise BadInput(
                f"{where}.data={head.data!r}: an rl stage plays env's tasks: expected env.data, or another "
                "kind, such as stepwise for the states of recorded trajectories"
            )

    def midway(self, stage: StageConfig) -> dict[str, Any]:
        own = {"loop.group_size": stage.config.loop.group_size}
        drawn = {f"curriculum.{key}": value for key, value in asdict(stage.config.curriculum).items()}
        return super().midway(stage) | own | drawn

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        loop = stage.config.loop
        episodes = loop.groups_per_step * loop.group_size
        found = list_levels(stage)
        sizes = ", ".join(f"{name} ({len(indices)} tasks)" for name, indices in found.items())
        return [
            *super().arithmetic(config, stage),
            self.evaluations(stage),
            *([f"curriculum = {stage.config.curriculum.name}, of the levels {sizes}"] if found else []),
            f"trajectories per step = {loop.groups_per_step} groups x {loop.group_size} = {episodes}",
            f"slots = {loop.groups_per_step} x (1 + lag {loop.max_policy_lag}) = {loop.slots} groups open",
        ]

    def evaluations(self, stage: StageConfig) -> str:
        every = stage.config.eval.every
        beside = max(stage.steps - 1, 0) // every if every else 0
        evaluated = sum(len(play.of.tasks) * play.samples * play.seeds for play in plays_of(stage.config).values())
        return f"evaluations = before, after and {beside} beside training, {evaluated} episodes each"

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        super().ready(config, stage)
        list_levels(stage)

    async def run(self, run: Run, stage: StageConfig) -> None:
        from launch.stages.rl_loop import rl_loop  # Ray and torch behind it: the keys are checked without

        await rl_loop(run, stage)


def list_levels(stage: StageConfig) -> dict[str, list[int]]:
    """The levels of its curriculum, with their tasks; {} for one without. Raises BadInput where the tasks have none."""
    config, world = stage.config.curriculum, make_world(stage.config.env)
    return {} if config.name == "uniform" else levels(config, world.tasks("train"), world.level)


def _check_streams(where: str, recipe: RecipeConfig) -> None:
    """Rewards of single tokens reach a gradient only through an algorithm that reads them."""
    for stream, without in traits_of(recipe.reward).streams.items():
        name = recipe.algorithm.name
        if not _reads_streams(name):
            reading = " or ".join(each for each in ALGORITHMS if _reads_streams(each))
            raise BadInput(
                f"{where}: reward.name={recipe.reward.name!r} has the token stream {stream!r} and "
                f"algorithm.name={name!r} reads none: expected {without}, or algorithm.name={reading}"
            )
        lam = getattr(recipe.algorithm, "lam", 1.0)  # of an algorithm whose critic looks several steps ahead (GAE)
        if lam != 1:
            raise BadInput(
                f"{where}: algorithm.lam={lam:g}: expected 1 for a reward with token streams, where one "
                f"critic cannot discount by two factors; {without} leaves {stream!r} out"
            )


def _check_signal(where: str, recipe: RecipeConfig) -> None:
    """What the algorithm of a stage could never learn from, and what waits for groups that it cannot have."""
    loop, name = recipe.loop, recipe.algorithm.name
    if loop.group_size == 1 and never_has(make_algorithm(recipe.algorithm), 1):
        raise BadInput(
            f"{where}: loop.group_size=1: expected at least 2 with algorithm.name={name!r}, which compares siblings"
        )
    drawn = recipe.curriculum.name
    for key, found, asks in (
        ("loop.oversample", f"{loop.oversample:g}", loop.oversample > 1),
        ("curriculum.name", repr(drawn), drawn == "difficulty"),
    ):
        if asks and not ever_lacks(make_algorithm(recipe.algorithm), loop.group_size):
            raise BadInput(
                f"{where}: {key}={found} looks for groups without signal, and algorithm.name={name!r} as it is set "
                f"learns from every group: expected {'1' if key == 'loop.oversample' else 'another curriculum'}, or an "
                "algorithm with a baseline of the group, such as grpo"
            )


def _reads_streams(name: str) -> bool:
    return bool(getattr(choose("algorithm", ALGORITHMS, name).build, "reads_streams", False))
