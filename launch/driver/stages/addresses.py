"""The models at addresses that the stages of a run will ask: judges, summarisers and teachers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from envs.rewards import judge_config_of
from envs.services.first_question import QUESTION, Address, judge_address, model_address
from launch.driver.evaluation.sets import sets_of
from launch.driver.stages.base import needs_engines
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig


def judge_and_teacher_endpoints(config: RunConfig, stages: Sequence[StageConfig]) -> list[Address]:
    """Of the stages that are still to come, in their order."""
    addresses: list[Address] = []
    for stage in stages:
        teacher = stage.config.generate.teacher
        if needs_engines(config, stage):
            addresses += judge_endpoints_of_recipe(stage.config)
        elif stage.kind == "generate" and teacher.given:
            addresses += [*teacher_endpoints(stage.config), *judge_endpoints_of_reward("reward.judge", stage.config)]
    return addresses


def judge_endpoints_of_recipe(recipe: RecipeConfig) -> list[Address]:
    """Of a stage: of its reward, for each environment, and of those of its evaluation sets."""
    recipes = [(f"envs.{name}." * bool(name) + "reward.judge", config) for name, config in recipe.by_env.items()]
    addresses = [address for where, config in recipes for address in judge_endpoints_of_reward(where, config)]
    return [*addresses, *(judge_endpoints_of_eval_sets(recipe) if recipe.eval.sets else [])]


def judge_endpoints_of_eval_sets(recipe: RecipeConfig) -> list[Address]:
    """Of an evaluation: of the rewards of its sets. Without any, of the recipe's, for each environment."""
    kind = "eval.sets" if recipe.eval.sets else "envs"
    sets = [(f"{kind}.{suite.name}.reward.judge" if suite.name else "reward.judge", suite) for suite in sets_of(recipe)]
    return [address for where, suite in sets for address in judge_endpoints_of_reward(where, suite.recipe)]


def judge_endpoints_of_reward(where: str, recipe: RecipeConfig) -> Iterator[Address]:
    address = judge_address(where, judge_config_of(recipe.reward))
    if address is not None:
        yield address


def teacher_endpoints(recipe: RecipeConfig) -> list[Address]:
    """Asked as its answers are sampled: not every model takes another temperature."""
    teacher, temperature = recipe.generate.teacher, recipe.generate.temperature
    options = {"question": replace(QUESTION, temperature=temperature), "deadline_s": teacher.deadline_s}
    models = teacher.addresses.items() if teacher.ask_first else ()
    return [model_address(where, model, **options) for where, model in models]
