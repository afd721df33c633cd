"""A recipe's memory on GPUs, line by line for `--dry-run`; what cannot fit is refused with the key to change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from launch.checks.gpu_memory import (
    BYTES,
    GIGA,
    OUTSIDE,
    PREFILL_TOKENS,
    VERSIONS_IN_MEMORY,
    EnginePlan,
    ModelShape,
    Parts,
    RankPlan,
    adapter_parameters,
    engine_memory,
    host_memory,
    rank_memory,
    scoring_share,
    total,
)
from launch.checks.machine import first_card, local_gpus
from launch.checks.memory_table import MemoryRow, format_rows, plural
from launch.checks.model_size import TEACHER, model_config, policy_shape, store_bytes, teacher_parameters, weights_bytes
from launch.checks.models import load_model_config, text_of
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE, VALUES
from rlsys.config.cluster import ClusterConfig
from rlsys.config.model import ADAPTER_RANKS
from rlsys.config.recipe import RecipeConfig, StageConfig
from rlsys.errors import BadInput
from rlsys.system.device import Device, dtype_of, require_resolved

USUAL_CARD_GB = 80.0  # where no card is here and no key says it
MOST_RANKS = 64  # that a remedy proposes
GPUS_OF_A_NODE = 8  # an engine is on one
LEAST_SHARE = 0.05  # of a card that is worth proposing to an engine
VLLM_SHARE = 0.92  # of a card that an engine may take if nothing else is on it


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    model: str  # its size, or why that is not known
    rows: Sequence[MemoryRow] = ()  # () where the size is not known
    problem: str | None = None  # why it cannot fit, in one line

    @property
    def lines(self) -> list[str]:
        return [self.model, *(format_rows(self.rows, "GB") if self.rows else [])]


def gpu_plan(
    recipe: RecipeConfig,
    training: Sequence[StageConfig],
    device: Device,
    parameters: int | None,
    ram: float | None = None,
    node_gpus: int = GPUS_OF_A_NODE,
) -> GpuPlan:
    """The recipes are resolved for this device. training: the stages that train.

    parameters: counted in the model's files, if they are here. ram: bytes of the node that learner ranks are on, if
    that is known. node_gpus: GPUs of a node.
    """
    shape = policy_shape(recipe, parameters)
    if shape is None:
        unknown = model_config(recipe) is None
        why = "not on this machine, nor can its hub be asked" if unknown else "of sizes that are not known"
        return GpuPlan(model=f"unknown: model.path={recipe.model.path!r} is {why}")
    dtype, card = dtype_of(recipe.model.dtype, device), card_gb(recipe.cluster)
    copy = shape.parameters * BYTES[dtype]
    rows, problems = [], []
    name, plan = _fullest(training, shape, dtype)
    if plan is not None:
        ranks = f"{plural(plan.ranks, 'rank')}, ZeRO-{plan.zero_stage}, in stage {name}"
        rows.append(MemoryRow(name="rank", parts=rank_memory(shape, plan), of=card * GIGA, note=ranks))
        problems.append(_too_small_for_rank(shape, plan, recipe, card))
        problems.append(explain_shared_gpu_overflow(shape, plan, recipe, card))
    row, problem = plan_engine(shape, recipe, dtype, card)
    rows += [row, _versions_row(recipe, device)]
    if plan is not None:
        together = min(plan.ranks, node_gpus)  # on the node that has most of them: they are packed
        readers = 1 if plan.zero_stage == 3 else together
        reading = "on a node while its ranks read; less where the files have this dtype, for they are mapped"
        rows.append(MemoryRow(name="reading", parts=((f"{readers} x the model", float(copy * readers)),), note=reading))
        node = f"on a node with {plural(together, 'rank')}, while a checkpoint is written"
        rows.append(MemoryRow(name="host", parts=_node(shape, plan, recipe, device, together), of=ram, note=node))
        problems.append(_too_small_for_node(shape, plan, recipe, device, card, ram, together))
    summary = f"{shape.parameters / GIGA:.2f} G parameters in {dtype}: {copy / GIGA:.1f} GB a copy"
    return GpuPlan(model=summary, rows=rows, problem=next((reason for reason in [*problems, problem] if reason), None))


def _versions_row(recipe: RecipeConfig, device: Device) -> MemoryRow:
    """Of the folder from which engines load weights, on each node."""
    versions = ((f"{VERSIONS_IN_MEMORY} versions of the weights", float(weights_bytes(recipe, device) or 0)),)
    if recipe.cluster.weights_dir is not None:
        return MemoryRow(name="weights", parts=versions, note=f"on each node, in {recipe.cluster.weights_dir}")
    parts = (*versions, ("Ray's object store", float(store_bytes(recipe, device))))
    docker = f"docker gives 0.06: --shm-size={2 * math.ceil(total(parts) / 2**30 / 2)}g"
    note = f"on each node, weights.channel={recipe.weights.channel}; {docker}"
    return MemoryRow(name="/dev/shm", parts=parts, note=note)


def host_bytes(recipe: RecipeConfig, training: Sequence[RecipeConfig], device: Device, parameters: int | None) -> float:
    """That one rank keeps in its node's RAM at most; 0 where the model's sizes are not known."""
    shape, dtype = policy_shape(recipe, parameters), dtype_of(recipe.model.dtype, device)
    if shape is None or not device.gpus_per_actor:
        return 0.0
    return max((total(host_memory(shape, plan, 1)) for plan in _rank_plans(shape, training, dtype)), default=0.0)


def card_gb(config: ClusterConfig) -> float:
    """`cluster.gpu_memory_gb`; null asks this machine's first GPU, and where there is none takes the usual card. Raises
    BadInput where there is one and nobody says its size."""
    if config.gpu_memory_gb is not None:
        return config.gpu_memory_gb
    card = first_card()
    if card is None and local_gpus():
        reason = "neither nvidia-smi nor CUDA says it of this machine's GPU"
        raise BadInput(reason, key="cluster.gpu_memory_gb", expected="its memory in GB")
    return round(card[1] / GIGA, 1) if card is not None else USUAL_CARD_GB


# -- learner ranks ----------------------------------------------------------------------------------------------------


def _fullest(training: Sequence[StageConfig], shape: ModelShape, dtype: str) -> tuple[str, RankPlan | None]:
    """The name of the stage in which a rank needs most."""
    plans = _rank_plans(shape, [stage.config for stage in training], dtype)
    pairs = zip([stage.name for stage in training], plans, strict=True)
    return max(pairs, key=lambda pair: total(rank_memory(shape, pair[1])), default=("", None))


def _rank_plans(shape: ModelShape, training: Sequence[RecipeConfig], dtype: str) -> list[RankPlan]:
    """Of the stages that train. Where one of them trains all weights, the adapters stand on what it leaves, and the
    model that the run began with is another one."""
    moved = any(not recipe.model.lora.rank for recipe in training)
    return [rank_plan(shape, recipe, dtype, moved=moved) for recipe in training]


def rank_plan(shape: ModelShape | None, recipe: RecipeConfig, dtype: str, *, moved: bool) -> RankPlan:
    """moved: as `_rank_plans` says. shape: None for a caller who counts the adapter."""
    learner, lora = recipe.learner, recipe.model.lora
    needs = make_algorithm(recipe.algorithm).needs if recipe.algorithm is not None else frozenset()
    return RankPlan(
        ranks=learner.ranks,
        zero_stage=learner.zero_stage,
        dtype=dtype,
        checkpointing=require_resolved(recipe.model.gradient_checkpointing),
        row_tokens=max(
            require_resolved(learner.tokens_per_row), recipe.engine.max_model_len
        ),  # a longer sample gets its own
        logit_chunk=learner.logit_chunk,
        # The weights under an adapter are a reference by themselves; a teacher is not, nor are those before them.
        reference=REFERENCE in needs
        and learner.served_teacher is None
        and (not lora.rank or learner.teacher is not None or (moved and learner.reference == "run")),
        critic=VALUES in needs,
        offload=learner.offload,
        offload_reference=learner.offload_reference,
        adapter=adapter_parameters(shape, lora.targets, lora.rank) if shape is not None else 0,
        teacher=teacher_parameters(learner.teacher) if learner.teacher is not None else None,
        sequence_parallel=learner.sequence_parallel,
        alternates=recipe.cluster.placement == "sleep",
    )


def most_zero(adapter: bool) -> Literal[2, 3]:
    """The highest ZeRO stage of what is trained: see `launch.config.adapters`."""
    return 2 if adapter else 3


def _propose_remedies(plan: RankPlan, shortest_row: int, heads: int) -> Iterator[tuple[str, RankPlan]]:
    """Each on its own, the cheapest first."""
    if not plan.checkpointing:
        yield "model.gradient_checkpointing=true", replace(plan, checkpointing=True)
    if plan.reference and not plan.offload_reference:
        yield "learner.offload_reference=true", replace(plan, offload_reference=True)
    if plan.alternates:  # `launch.config.placement` takes no other
        return
    for stage in range(plan.zero_stage + 1, 1 + most_zero(plan.adapter > 0)):
        yield f"learner.zero_stage={stage}", replace(plan, zero_stage=stage)
    if plan.row_tokens > shortest_row:
        yield f"learner.tokens_per_row={shortest_row}", replace(plan, row_tokens=shortest_row)
    row = f"learner.tokens_per_row={plan.row_tokens}"  # which by itself grows with the ranks that share it
    ways = [way for power in range(1, 7) if heads % (way := plan.sequence_parallel << power) == 0]
    for way in ways:
        if plan.ranks % way == 0:
            yield f"learner.sequence_parallel={way} {row}", replace(plan, sequence_parallel=way)
    ranks = 2 * plan.ranks
    while plan.zero_stage > 1 and ranks <= MOST_RANKS:
        yield f"learner.ranks={ranks}", replace(plan, ranks=ranks)
        ranks *= 2
    if plan.offload == "none":
        yield "learner.offload=optimizer", replace(plan, offload="optimizer")
    for way in ways:
        if way > plan.ranks:
            keys = f"learner.ranks={way} learner.sequence_parallel={way} {row}"
            yield keys, replace(plan, ranks=way, sequence_parallel=way)


def _too_small_for_rank(shape: ModelShape, plan: RankPlan, recipe: RecipeConfig, card: float) -> str | None:
    beside = OUTSIDE / GIGA if plan.alternates else 0.0

    def fits(trial: RankPlan) -> bool:
        return total(rank_memory(shape, trial)) <= (card - beside) * GIGA

    if fits(plan):
        return None
    window = recipe.engine.max_model_len
    remedy = next((key for key, trial in _propose_remedies(plan, window, shape.heads) if fits(trial)), None)
    if remedy is None and plan.alternates:
        remedy = "cluster.placement=split, or cards with more memory"
    elif remedy is None:  # not one key alone: what saves most, and then as many ranks as it takes
        zero = plan.zero_stage if plan.adapter else 3
        lean = replace(plan, checkpointing=True, zero_stage=zero, offload_reference=plan.reference)
        more = next(
            (key for key, trial in _propose_remedies(lean, window, shape.heads) if fits(trial)),
            "a shorter engine.max_model_len",
        )
        keys = ["model.gradient_checkpointing=true"] * (not plan.checkpointing)
        keys += ["learner.zero_stage=3"] * (plan.zero_stage < zero)
        keys += ["learner.offload_reference=true"] * (plan.reference and not plan.offload_reference)
        remedy = " and ".join(keys if fits(lean) else [*keys, more])
    rank_gb = total(rank_memory(shape, plan)) / GIGA
    kept = f", of which a sleeping engine keeps {beside:g}" if beside else ""
    return (
        f"a learner rank needs about {rank_gb:.0f} GB of a GPU's {card:g} (cluster.gpu_memory_gb){kept}: try {remedy}"
    )


def _node(shape: ModelShape, plan: RankPlan, recipe: RecipeConfig, device: Device, together: int) -> Parts:
    """together: ranks on it."""
    parts = host_memory(shape, plan, together)
    if recipe.cluster.weights_dir is not None:
        return parts
    return (*parts, ("versions", float(weights_bytes(recipe, device) or 0)))


def _too_small_for_node(
    shape: ModelShape,
    plan: RankPlan,
    recipe: RecipeConfig,
    device: Device,
    card: float,
    ram: float | None,
    together: int,
) -> str | None:
    need = total(_node(shape, plan, recipe, device, together))
    if ram is None or need <= ram:
        return None
    on_card = replace(plan, offload="none", offload_reference=False)
    host = total(_node(shape, on_card, recipe, device, together))
    fits = total(rank_memory(shape, on_card)) <= card * GIGA and host <= ram
    remedy = "learner.offload=none learner.offload_reference=false" if fits else "ranks on more nodes, or one with more"
    return f"the learner ranks of a node keep {need / GIGA:.0f} GB in its RAM of {ram / GIGA:.0f} GB: try {remedy}"


def explain_shared_gpu_overflow(shape: ModelShape, plan: RankPlan, recipe: RecipeConfig, card: float) -> str | None:
    """Why a rank and an engine cannot share a card; None where they can, or have one each."""
    need, share = total(rank_memory(shape, plan)) / GIGA, recipe.engine.gpu_memory_utilization
    most = math.floor(100 * (1 - OUTSIDE / GIGA / card)) / 100
    if plan.alternates and share > most:
        kept = f"leaves less than the {OUTSIDE / GIGA:g} GB that a rank's process keeps on the same GPU"
        return f"engine.gpu_memory_utilization={share:g} {kept}: try engine.gpu_memory_utilization={most:g}"
    if recipe.cluster.placement != "shared" or need + share * card <= card * VLLM_SHARE:
        return None
    free_share = math.floor(100 * (VLLM_SHARE - need / card)) / 100
    least = f"engine.gpu_memory_utilization={free_share:g}" if free_share >= LEAST_SHARE else "cluster.placement=split"
    pair = f"a rank of {need:.1f} GB and an engine of {share * card:.1f} GB (engine.gpu_memory_utilization={share:g})"
    return f"{pair} do not fit on one GPU of {card:g} GB, of which they may fill {VLLM_SHARE:.0%}: try {least}"


def shared_cache_mb(recipe: RecipeConfig, device: Device, parameters: int | None) -> int | None:
    """KV cache of an engine that shares its card with a rank, in MiB: as planned, since vLLM would measure what is left
    while the rank is loading its model there. None for an engine with a card of its own, which measures.

    Raises BadInput for a model or a GPU whose sizes are not known, and where nothing is left for it.
    """
    if recipe.cluster.placement != "shared" or not device.gpus_per_actor:
        return None
    shape, dtype = policy_shape(recipe, parameters), dtype_of(recipe.model.dtype, device)
    if shape is None:
        expected = "a model whose sizes are known, to divide the GPU by"
        raise BadInput(key="cluster.placement", found="shared", expected=expected)
    if recipe.cluster.gpu_memory_gb is None and not local_gpus():
        raise BadInput(
            "this machine has no GPU to ask",
            key="cluster.gpu_memory_gb",
            expected="the memory of the shared GPU, in GB",
        )
    engine = engine_memory(shape, engine_plan(recipe, dtype, card_gb(recipe.cluster), shape))
    cache_mb = int(engine.cache / 2**20)
    if cache_mb <= 0:
        share = recipe.engine.gpu_memory_utilization
        raise BadInput(
            "no memory is left for the engine's KV cache", key="engine.gpu_memory_utilization", found=share,
            expected="more, or cluster.placement=split",
        )  # fmt: skip
    return cache_mb


# -- engines ----------------------------------------------------------------------------------------------------------


def plan_engine(shape: ModelShape, recipe: RecipeConfig, dtype: str, card: float) -> tuple[MemoryRow, str | None]:
    """Its row, and what keeps the engines from fitting, if anything does."""
    plan, workers = engine_plan(recipe, dtype, card, shape), recipe.rollout.workers
    memory = engine_memory(shape, plan)
    window, contexts = plan.max_model_len, max(0.0, memory.tokens / plan.max_model_len)
    room = f"{max(0, int(memory.tokens)):,} tokens, {contexts:.1f} whole contexts of {window}"
    cards = f" on {plan.tensor_parallel} cards each" if plan.tensor_parallel > 1 else ""
    note = f"{plural(workers, 'engine')}{cards}; room for {room}; engine.max_num_seqs={plan.max_num_seqs}"
    line = MemoryRow(name="engine", parts=memory.parts, of=card * GIGA, note=note)
    if memory.tokens >= window:
        return line, None
    alone = recipe.cluster.placement == "sleep"  # on one card
    tries = ((key, trial) for key, trial in engine_remedies(shape, plan) if not alone or trial.tensor_parallel == 1)
    remedy = next((key for key, trial in tries if engine_memory(shape, trial).tokens >= window), None)
    shorter = int(memory.tokens) // 1024 * 1024
    remedy = remedy or (f"engine.max_model_len={shorter}" if shorter > 0 else "cards with more memory")
    engine_gb = total(memory.fixed) / GIGA
    problem = f"an engine needs {engine_gb:.0f} GB for weights and one step and room for engine.max_model_len={window}"
    return line, f"{problem}, of {plan.share * card:.0f} GB (engine.gpu_memory_utilization): try {remedy}"


def engine_plan(recipe: RecipeConfig, dtype: str, card: float, shape: ModelShape | None = None) -> EnginePlan:
    """card: GB. shape: of the model, where its adapter is to be counted."""
    engine, lora = recipe.engine, recipe.model.lora
    buffers = next(rank for rank in (0, *ADAPTER_RANKS) if rank >= lora.rank)
    return EnginePlan(
        tensor_parallel=engine.tensor_parallel,
        dtype=dtype,
        max_num_seqs=engine.max_num_seqs,
        max_model_len=engine.max_model_len,
        card=card * GIGA,
        share=engine.gpu_memory_utilization,
        adapter=adapter_parameters(shape, lora.targets, buffers) if shape is not None else 0,
    )


def reference_share(recipe: RecipeConfig) -> float:
    """Of its cards that the engine of a served reference takes; nothing else is on them."""
    engine = recipe.engine
    config = text_of(load_model_config(str(recipe.learner.served_teacher), TEACHER) or {})
    vocab, setting = config.get("vocab_size"), engine.vllm.get("max_num_batched_tokens")
    if not isinstance(vocab, int):
        return VLLM_SHARE
    batched = setting if isinstance(setting, int) else max(PREFILL_TOKENS, engine.max_num_seqs + 1)
    return scoring_share(vocab, min(batched, engine.max_model_len), card_gb(recipe.cluster) * GIGA, VLLM_SHARE)


def engine_remedies(
    shape: ModelShape, plan: EnginePlan, divided_by: str = "engine.tensor_parallel", most_share: float = VLLM_SHARE
) -> Iterator[tuple[str, EnginePlan]]:
    """Each on its own, the cheapest first. divided_by: the key of the GPUs that it is divided among. most_share: of a
    card that it may take."""
    if plan.share < most_share:
        yield f"engine.gpu_memory_utilization={most_share}", replace(plan, share=most_share)
    ways = 2 * plan.tensor_parallel
    while ways <= GPUS_OF_A_NODE and shape.heads % ways == 0:
        yield f"{divided_by}={ways}", replace(plan, tensor_parallel=ways)
        ways *= 2
