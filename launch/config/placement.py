"""A learner rank and an engine on one GPU (`cluster.placement=shared`): which recipes can have that."""

from __future__ import annotations

from rlsys.config.recipe import RecipeConfig
from rlsys.errors import require


def check_placement(recipe: RecipeConfig) -> None:
    """Raises BadInput. Ray divides GPUs by numbers alone: of more than two halves it could put two ranks on a card."""
    if recipe.cluster.placement != "shared":
        return
    expected = "1 with cluster.placement=shared, which puts one rank and one engine on one GPU"
    require(recipe.learner.ranks == 1, "learner.ranks", recipe.learner.ranks, expected)
    require(recipe.rollout.workers == 1, "rollout.workers", recipe.rollout.workers, expected)
    require(recipe.engine.tensor_parallel == 1, "engine.tensor_parallel", recipe.engine.tensor_parallel, expected)
