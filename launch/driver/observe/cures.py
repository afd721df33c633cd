"""Keys to turn that several signs name, each with the value that it has."""

from __future__ import annotations

from rlsys.config.recipe import RecipeConfig


def now(key: str, value: float) -> str:
    """A key with what it is: not as `key=value`, which would be pasted as the cure."""
    return f"{key} (now {value:g})"


def slower(recipe: RecipeConfig, stage: str = "") -> str:
    """The keys that hold a policy back. stage: the one whose own learning rate is meant."""
    coef = getattr(recipe.algorithm, "kl_coef", None)
    alternative = "" if coef is None else f", or raise {now('algorithm.kl_coef', coef)}"
    rate = f"stages.{stage}.learner.lr" if stage else "learner.lr"
    return f"lower {now(rate, recipe.learner.lr)}{alternative}"
