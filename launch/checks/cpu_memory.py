"""What a run's processes keep in RAM: on a machine without a GPU a learner rank, by the arithmetic of `gpu_memory` and
what libraries take, and an engine; everywhere the driver.

On a CPU weights, gradients and moments are float32, whatever `model.dtype` is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from launch.checks.deadlines import longest_response
from launch.checks.gpu_memory import Parts, RankPlan, rank_memory, total
from launch.checks.gpu_plan import rank_plan
from launch.checks.memory_table import MemoryRow
from launch.checks.model_size import adapter_of, parameters, policy_shape
from rlsys.config.recipe import RecipeConfig, StageConfig
from rlsys.system.device import DEVICES, require_resolved, resolve, resolve_cluster

# Resident memory of each process before it holds a model, measured on the CPU build: docs/measurements.md.
WORKER_MB = 2100  # rollout actor and its engine process
DRIVER_MB = 1200  # driver, Ray's own processes, wandb
# Of a token, in the driver (benchmarks/growth.py): in a group that is being written, its arrays, its text and a line;
# and in an evaluation that is under way, the text, whose numbers are made at its end.
WRITTEN_BYTES, EVALUATED_BYTES = 40, 5
# Measured (docs/measurements.md): a rank without a model; and the kernels that torch's oneDNN makes and keeps for each
# length of a row that is new to it: 8 MiB an update at first, and about 900 after the quickstart's 150 updates.
LEARNER_MB, KERNELS_MB = 500, 900
FILLED = 0.5  # of a row: few batches fill theirs, and a start is not refused for what seldom is
LEAST_CACHE_MB = 64  # of an engine, that is proposed

Stages = Sequence[StageConfig]  # those that train; () where they are not known


def rank_parts(recipe: RecipeConfig, count: int, stages: Stages = ()) -> Parts:
    """Of a rank in the stage in which it needs most, in bytes. count: parameters of the policy."""
    shape = policy_shape(recipe, count or None)
    process = (("process", LEARNER_MB * 2.0**20), ("kernels", KERNELS_MB * 2.0**20))
    if shape is None:
        return (*process, ("weights, gradients, moments", 16.0 * count))
    plans = [_plan(recipe, stage.kind, stage.config) for stage in stages] or [_plan(recipe, "", recipe)]
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


def memory_of_parts(recipe: RecipeConfig, count: int) -> tuple[int, int]:
    """MiB of an engine and of a rank on a CPU, for a policy of `count` parameters.

    fp32 on a CPU: an engine holds the weights and their packed copy. A rank: `rank_parts`.
    """
    engine, rank = total(_engine_parts(recipe, count)), total(rank_parts(recipe, count))
    return int(engine) // 2**20, int(rank) // 2**20


def _engine_parts(recipe: RecipeConfig, count: int) -> Parts:
    return _bytes([("process", WORKER_MB), ("KV cache", recipe.engine.kv_cache_mb), ("weights", 8 * count // 2**20)])


def episodes_mb(recipe: RecipeConfig) -> int:
    """MiB of the episodes that are in the driver at the same time, at most: all as long as they may get."""
    window, common = recipe.engine.max_model_len, recipe.eval
    longest = min(recipe.rollout.max_response_tokens or window, window)
    group, evaluated = recipe.loop.group_size * longest, 0
    for eval_set in common.sets.values() or [common]:
        tasks, greedy, samples, seeds, most = (
            getattr(common, name) if getattr(eval_set, name) is None else getattr(eval_set, name)
            for name in ("tasks", "greedy", "samples", "seeds", "max_response_tokens")
        )
        tokens = min(most or longest, window)
        group = max(group, samples * seeds * tokens)
        evaluated += tasks * (greedy + samples * seeds) * tokens
    return int(WRITTEN_BYTES * group + EVALUATED_BYTES * evaluated) // 2**20


def driver_row(recipe: RecipeConfig, store_mb: int = 0) -> MemoryRow:
    """store_mb: of Ray's object store, where no other row has it."""
    parts = (("process", DRIVER_MB), ("object store", store_mb), ("episodes", episodes_mb(recipe)))
    return MemoryRow(name="driver", parts=_bytes([part for part in parts if part[1]]))


def memory_plan(
    recipe: RecipeConfig, *, learner: bool, there: float | None = None, stages: Stages = ()
) -> tuple[list[MemoryRow], int]:
    """A row for each kind of process and one of their sum, and its MiB, on one machine without a GPU.

    there: bytes of the machine's RAM. stages: as of `Stages`.
    """
    num_parameters = parameters(recipe)
    count = num_parameters or 0
    engines, ranks = recipe.rollout.workers, recipe.learner.ranks if learner else 0
    store_mb = require_resolved(resolve_cluster(recipe.cluster, DEVICES["cpu"]).object_store_mb)
    rank = rank_parts(recipe, count, stages)
    kinds = (("engine", engines, _engine_parts(recipe, count)), ("learner", ranks, rank))
    rows, sums = [], []
    for name, times, parts in kinds:
        row = MemoryRow(name=name, parts=parts, note=f"x {times}" if times > 1 else "")
        if times:
            rows.append(row)
            sums.append((f"{name}s" if times > 1 else name, times * (int(row.needed) // 2**20)))
    driver = driver_row(recipe, store_mb)
    rows.append(driver)
    sums.append((driver.name, int(driver.needed) // 2**20))
    total_mb = sum(size for _, size in sums)
    unknown = "" if num_parameters is not None else "without the model, whose size is not known"
    return [*rows, MemoryRow(name="together", parts=_bytes(sums), of=there, note=unknown)], total_mb


def _bytes(megabytes: Sequence[tuple[str, int]]) -> Parts:
    return tuple((name, float(size * 2**20)) for name, size in megabytes)


def remedies(recipe: RecipeConfig, stages: Stages, *, learner: bool) -> Iterator[tuple[str, RecipeConfig, Stages]]:
    """Keys that lower memory, each on its own, with what they make of the run; the cheapest first."""
    cache, window = recipe.engine.kv_cache_mb, recipe.engine.max_model_len
    rows = [require_resolved(resolve(stage.config, DEVICES["cpu"]).learner.tokens_per_row) for stage in stages]
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
        yield key, change(recipe), [replace(stage, config=change(stage.config)) for stage in stages]
