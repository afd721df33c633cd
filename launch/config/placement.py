"""A learner rank and an engine on one GPU (`cluster.placement`): which recipes can have that."""

from __future__ import annotations

from rlsys.config.recipe import RecipeConfig
from rlsys.errors import require


def check_placement(recipe: RecipeConfig) -> None:
    """Raises BadInput."""
    if recipe.cluster.placement == "shared":
        _check_shared(recipe)
    if recipe.cluster.placement == "sleep":
        _check_alternation(recipe)


def _check_shared(recipe: RecipeConfig) -> None:
    """Ray divides GPUs by numbers alone: of more than two halves it could put two ranks on a card."""
    expected = "1 with cluster.placement=shared, which puts one rank and one engine on one GPU"
    require(recipe.learner.ranks == 1, "learner.ranks", recipe.learner.ranks, expected)
    require(recipe.rollout.workers == 1, "rollout.workers", recipe.rollout.workers, expected)
    require(recipe.engine.tensor_parallel == 1, "engine.tensor_parallel", recipe.engine.tensor_parallel, expected)


def _check_alternation(recipe: RecipeConfig) -> None:
    """What can leave the card and return: states that DeepSpeed moves, and engines on one GPU each."""
    learner, engine = recipe.learner, recipe.engine
    why = "with cluster.placement=sleep"
    workers = f"{learner.ranks}, as learner.ranks, {why}: each GPU has a rank and an engine"
    require(recipe.rollout.workers == learner.ranks, "rollout.workers", recipe.rollout.workers, workers)
    require(engine.tensor_parallel == 1, "engine.tensor_parallel", engine.tensor_parallel, f"1 {why}")
    require(learner.zero_stage == 2, "learner.zero_stage", learner.zero_stage, f"2 {why}")
    moved = f"none {why}: everything leaves the GPU anyway"
    require(learner.offload == "none", "learner.offload", learner.offload, moved)
    require(recipe.model.lora.rank == 0, "model.lora.rank", recipe.model.lora.rank, f"0 {why}, or placement=shared")
    kept = f"recompute {why}: a KV cache does not survive the sleep"
    require(recipe.loop.running_kv != "keep", "loop.running_kv", recipe.loop.running_kv, kept)
