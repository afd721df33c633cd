"""Arguments of the chat template that a saved model was trained with: it is played with them, or with others said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.driver.checkpoints.model_card import read_template_args
from launch.driver.evaluation.sets import sets_of
from rlsys.config.recipe import RecipeConfig
from rlsys.rollout import template_args_of

KEY = "template_args"


def with_trained_args(
    recipe: RecipeConfig, overrides: Sequence[str], model: str | None, say: Callable[[str], None]
) -> RecipeConfig:
    """The recipe with the arguments of the model's own, in each environment for which nobody gives any.

    overrides: of the command line, where `env.template_args={}` asks for none. Each environment whose arguments are
    taken, or are others than the model's, has a line. Raises BadInput for a model's file that cannot be read.
    """
    trained = read_template_args(Path(model)) if model is not None else None
    if trained is None:
        return recipe
    env_args: dict[str, Mapping[str, Any]] = {}
    for name, env_recipe in recipe.by_env.items():
        args, key = (
            trained.get(name or env_recipe.env.name, trained.get("", {})),
            f"envs.{name}.{KEY}" if name else f"env.{KEY}",
        )
        if args == template_args_of(env_recipe.env):
            continue
        if _asks(overrides, key) or template_args_of(env_recipe.env) or not hasattr(env_recipe.env, KEY):
            say(f"{key}={json.dumps(template_args_of(env_recipe.env))}: the model was trained with {json.dumps(args)}")
        else:
            env_args[name] = args
            say(f"{key}={json.dumps(args)}: as the model was trained")
    recipe = _with_args(recipe, env_args)
    return recipe if _asks(overrides, f"env.{KEY}") else _with_args_of_sets(recipe, trained.get("", {}))


def _asks(overrides: Sequence[str], key: str) -> bool:
    """Whether the command line gives the key, an entry of it, or the section with it."""
    section = key.rpartition(".")[0]
    for text in overrides:
        name, _, value = text.partition("=")
        name = name.split(".", 2)[-1] if name.startswith("stages.") else name
        if name == key or name.startswith(f"{key}.") or (name == section and KEY in value):
            return True
    return False


def _with_args(recipe: RecipeConfig, args: Mapping[str, Mapping[str, Any]]) -> RecipeConfig:
    """args: by environment, "" for the only one."""

    def given(name: str, env: Any) -> Any:
        return replace(env, **{KEY: dict(args[name])}) if name in args else env

    if not recipe.envs:
        return replace(recipe, env=given("", recipe.env))
    shares = {name: replace(share, env=given(name, share.env)) for name, share in recipe.envs.items()}
    return replace(
        recipe, envs=shares, env=replace(recipe.env, parts={name: share.env for name, share in shares.items()})
    )


def _with_args_of_sets(recipe: RecipeConfig, args: Mapping[str, Any]) -> RecipeConfig:
    """Also in the sets that have an environment of their own."""
    sets = dict(recipe.eval.sets)
    for task_set in sets_of(recipe) if sets and args else ():
        env, set_config = task_set.recipe.env, sets[task_set.name]
        if KEY not in set_config.env and hasattr(env, KEY) and not template_args_of(env):
            sets[task_set.name] = replace(set_config, env={**set_config.env, KEY: dict(args)})
    return replace(recipe, eval=replace(recipe.eval, sets=sets)) if sets != recipe.eval.sets else recipe
