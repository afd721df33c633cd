"""The models at addresses that the stages of a run will ask: judges, summarisers and teachers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from envs.rewards import judge_of
from envs.services.first_question import QUESTION, Address, address_of_judge, address_of_model
from launch.driver.evaluation.sets import sets_of
from launch.driver.stages.base import needs_engines
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig


def addresses_of(config: RunConfig, stages: Sequence[StageConfig]) -> list[Address]:
    """Of the stages that are still to come, in their order."""
    found: list[Address] = []
    for stage in stages:
        teacher = stage.config.generate.teacher
        if needs_engines(config, stage):
            found += addresses_of_recipe(stage.config)
        elif stage.kind == "generate" and teacher.given:
            found += [*addresses_of_teacher(stage.config), *addresses_of_reward("reward.judge", stage.config)]
    return found


def addresses_of_recipe(recipe: RecipeConfig) -> list[Address]:
    """Of a stage: of its reward, for each environment, and of those of its evaluation sets."""
    named = [(f"envs.{name}." * bool(name) + "reward.judge", one) for name, one in recipe.by_env.items()]
    found = [each for where, one in named for each in addresses_of_reward(where, one)]
    return [*found, *(addresses_of_sets(recipe) if recipe.eval.sets else [])]


def addresses_of_sets(recipe: RecipeConfig) -> list[Address]:
    """Of an evaluation: of the rewards of its sets. Without any, of the recipe's, for each environment."""
    kind = "eval.sets" if recipe.eval.sets else "envs"
    named = [(f"{kind}.{each.name}.reward.judge" if each.name else "reward.judge", each) for each in sets_of(recipe)]
    return [found for where, each in named for found in addresses_of_reward(where, each.recipe)]


def addresses_of_reward(where: str, recipe: RecipeConfig) -> Iterator[Address]:
    found = address_of_judge(where, judge_of(recipe.reward))
    if found is not None:
        yield found


def addresses_of_teacher(recipe: RecipeConfig) -> list[Address]:
    """Asked as its answers are sampled: not every model takes another temperature."""
    teacher, temperature = recipe.generate.teacher, recipe.generate.temperature
    asked = {"question": replace(QUESTION, temperature=temperature), "deadline_s": teacher.deadline_s}
    named = teacher.addresses.items() if teacher.ask_first else ()
    return [address_of_model(where, each, **asked) for where, each in named]
