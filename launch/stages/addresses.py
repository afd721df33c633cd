"""The models at addresses that the stages of a run will ask: judges, summarisers and teachers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envs.rewards import judge_of
from envs.services.first_question import Address, address_of_judge, address_of_model
from launch.evaluation.sets import sets_of
from launch.stages.base import needs_engines
from rlsys.config.generate import TeacherConfig
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig


def addresses_of(config: RunConfig, stages: Sequence[StageConfig]) -> list[Address]:
    """Of the stages that are still to come, in their order."""
    found: list[Address] = []
    for stage in stages:
        teacher = stage.config.generate.teacher
        if needs_engines(config, stage):
            found += addresses_of_recipe(stage.config)
        elif stage.kind == "generate" and teacher.given:
            found += [*addresses_of_teacher(teacher), *addresses_of_reward("reward.judge", stage.config)]
    return found


def addresses_of_recipe(recipe: RecipeConfig) -> list[Address]:
    """Of its reward and of those of its evaluation sets."""
    found = list(addresses_of_reward("reward.judge", recipe))
    for each in sets_of(recipe):
        if each.name:
            found += addresses_of_reward(f"eval.sets.{each.name}.reward.judge", each.recipe)
    return found


def addresses_of_reward(where: str, recipe: RecipeConfig) -> Iterator[Address]:
    found = address_of_judge(where, judge_of(recipe.reward))
    if found is not None:
        yield found


def addresses_of_teacher(teacher: TeacherConfig) -> list[Address]:
    return [address_of_model(where, each) for where, each in teacher.addresses.items() if teacher.ask_first]
