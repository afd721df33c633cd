"""What a learner rank keeps in RAM on a machine without a GPU: the arithmetic of `gpu_memory`, and what libraries take.

Weights, gradients and moments are float32, whatever `model.dtype` is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from launch.checks.deadlines import longest_response
from launch.checks.gpu_memory import Parts, RankPlan, rank_memory, total
from launch.checks.gpu_plan import rank_plan
from launch.checks.model_size import adapter_of, policy_shape
from rlsys.config.recipe import RecipeConfig
from rlsys.system.device import DEVICES, require_resolved, resolve

# Measured (docs/measurements.md): a rank without a model; and the kernels that torch's oneDNN makes and keeps for each
# length of a row that is new to it: 8 MiB an update at first, and about 900 after the quickstart's 150 updates.
LEARNER_MB, KERNELS_MB = 500, 900
FILLED = 0.5  # of a row: few batches fill theirs, and a start is not refused for what seldom is
LEAST_CACHE_MB = 64  # of an engine, that is proposed

Stages = Sequence[tuple[str, RecipeConfig]]  # kind and recipe of the stages that train; () where they are not known


def rank_parts(recipe: RecipeConfig, count: int, stages: Stages = ()) -> Parts:
    """Of a rank in the stage in which it needs most, in bytes. count: parameters of the policy."""
    shape = policy_shape(recipe, count or None)
    process = (("process", LEARNER_MB * 2.0**20), ("kernels", KERNELS_MB * 2.0**20))
    if shape is None:
        return (*process, ("weights, gradients, moments", 16.0 * count))
    plans = [_plan(recipe, kind, stage) for kind, stage in stages or [("", recipe)]]
    sizes = [rank_memory(shape, plan) for plan in plans]
    return (*process, *max(sizes, key=total))


def _plan(recipe: RecipeConfig, kind: str, stage: RecipeConfig) -> RankPlan:
    adapter, stage = adapter_of(recipe), resolve(stage, DEVICES["cpu"])
    whole = replace(stage, model=replace(stage.model, lora=replace(stage.model.lora, rank=0)))
    plan = rank_plan(None, whole if adapter is None else stage, "float32", moved=False)
    filled = max(stage.engine.max_model_len, math.ceil(FILLED * _row_tokens(kind, stage)))
    return replace(plan, adapter=adapter or 0, row_tokens=filled, buckets=1)


def _row_tokens(kind: str, stage: RecipeConfig) -> int:
    """That the model computes at once. Siblings' prompts are computed once where neighbours share them: in an rl stage
    of one message, where a prompt is what the answer leaves of the window."""
    window, loop, learner = stage.engine.max_model_len, stage.loop, stage.learner
    row = max(require_resolved(learner.tokens_per_row), window)
    if kind != "rl":
        return row
    row = min(row, max(1, loop.groups_per_step * loop.group_size // learner.ranks) * window)
    one_message = not stage.envs and (getattr(stage.env, "max_turns", None) or 1) == 1
    if not one_message or not learner.rows_in_order or learner.sequence_parallel > 1:
        return row
    answer = longest_response(stage, 1) / window
    return max(window, math.ceil(row * (answer + (1 - answer) / loop.group_size)))


def remedies(recipe: RecipeConfig, stages: Stages, *, learner: bool) -> Iterator[tuple[str, RecipeConfig, Stages]]:
    """Keys that lower memory, each on its own, with what they make of the run; the cheapest first."""
    cache, window = recipe.engine.kv_cache_mb, recipe.engine.max_model_len
    rows = [require_resolved(resolve(stage, DEVICES["cpu"]).learner.tokens_per_row) for _, stage in stages]
    changes: list[tuple[str, Callable[[RecipeConfig], RecipeConfig]]] = []
    if cache > LEAST_CACHE_MB:
        engine = replace(recipe.engine, kv_cache_mb=LEAST_CACHE_MB)
        changes.append((f"engine.kv_cache_mb={LEAST_CACHE_MB}", lambda of: replace(of, engine=engine)))
    if learner and max(rows, default=0) > window:
        key = f"learner.tokens_per_row={window}"
        changes.append((key, lambda of: replace(of, learner=replace(of.learner, tokens_per_row=window))))
    if learner and not recipe.model.gradient_checkpointing:
        key = "model.gradient_checkpointing=true"
        changes.append((key, lambda of: replace(of, model=replace(of.model, gradient_checkpointing=True))))
    if recipe.rollout.workers > 1:
        one = replace(recipe.rollout, workers=1, min_workers=1)
        changes.append(("rollout.workers=1", lambda of: replace(of, rollout=one)))
    for key, change in changes:
        yield key, change(recipe), [(kind, change(stage)) for kind, stage in stages]
