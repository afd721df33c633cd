"""What a learner rank and an engine keep on a GPU, in bytes: arithmetic on a model's shape, nothing measured.

docs/gpu.md says what each line stands for. Where a library decides (DeepSpeed's buffers, vLLM's working memory), the
number follows from its code at the versions of `pyproject.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

BYTES = {"float32": 4, "bfloat16": 2}
GIGA = 1e9  # as cards are sold
LIVE_PARAMETERS = 1_000_000_000  # that ZeRO-3 keeps gathered at a time, DeepSpeed's default
BUCKET_PARAMETERS = 200_000_000  # of learners.zero.deepspeed_config
ENGINE_TOKENS = 8192  # that vLLM computes in one step, at most
PREFILL_TOKENS = 2048  # of a prompt that rlsys' engines compute at a time: vLLM's default where no server is asked for
SCORE_BYTES = 10  # a word of such a token that is scored: logits in bfloat16, log-probabilities and their copy in fp32
OUTSIDE = 1.5e9  # bytes of a card that an engine's process takes besides what vLLM counts: CUDA, kernels, graphs
VERSIONS_IN_MEMORY = 2  # in /dev/shm: the one in use, and the one that is being written or carried
# Whose head is the embedding where config.json does not say: transformers' defaults of the types that can be trained.
TIED = frozenset({"cohere", "cohere2", "ernie4_5", "gemma", "gemma2", "gemma3_text", "gpt2", "minicpm3", "opt"})

Parts = tuple[tuple[str, float], ...]  # what, and its bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def token_bytes(self) -> float:
        """Of activations that the backward pass of one layer wants, per token and byte of a number: the inputs of its
        matrices and norms, the gate's and its product, queries, keys and values."""
        return 4 * self.intermediate + 12 * self.hidden + (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def matrices(self) -> int:
        """Weights of the layers' matrices."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What decides about the memory of one learner rank."""

    ranks: int
    zero_stage: int
    dtype: str
    checkpointing: bool
    row_tokens: int  # of the longest row
    logit_chunk: int
    reference: bool  # a frozen model next to the policy
    critic: bool
    offload: str  # as learner.offload
    offload_reference: bool
    adapter: int = 0  # its parameters, where the model stays frozen under one
    teacher: int | None = None  # parameters of a reference that is another model
    sequence_parallel: int = 1  # ranks that share a row
    buckets: int = 2  # of gradients that are under way; one where they are not sent during the backward pass
    alternates: bool = False  # its card is an engine's at times

    @property
    def own_tokens(self) -> int:
        """Of the longest row, on this rank."""
        return math.ceil(self.row_tokens / self.sequence_parallel)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    tensor_parallel: int
    dtype: str
    max_num_seqs: int
    max_model_len: int
    card: float  # bytes of one GPU
    share: float  # of them that the engine takes
    adapter: int = 0  # parameters that its buffers hold


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Of one GPU, in bytes."""

    fixed: Parts  # what an engine holds before it has a sequence
    cache: float  # what is left for keys and values: below 0 where nothing is
    tokens: float  # whose keys and values fit into it

    @property
    def parts(self) -> Parts:
        return (*self.fixed, ("KV cache", self.cache))


def shape_of(config: Mapping[str, Any], parameters: int | None = None) -> ModelShape | None:
    """From config.json; None for a model whose sizes have other names. `parameters`: counted in the files, if they are
    here."""
    text = config.get("text_config") or config
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    sizes = [size for name in names if isinstance(size := text.get(name), int) and size > 0]
    if len(sizes) < len(names):
        return None
    layers, hidden, intermediate, heads, vocab = sizes
    kv_heads = text.get("num_key_value_heads") or heads
    head_dim = text.get("head_dim") or hidden // heads
    shape = ModelShape(
        parameters=parameters or 0, layers=layers, hidden=hidden, intermediate=intermediate, heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, vocab=vocab,
    )  # fmt: skip
    head_and_embedding = vocab * hidden * (1 if has_tied_head(config) else 2)
    norms = (2 * layers + 1) * hidden
    return shape if parameters else replace(shape, parameters=shape.matrices + norms + head_and_embedding)


def adapter_parameters(shape: ModelShape, targets: Collection[str], rank: int) -> int:
    """Of an adapter of this rank: for each target one matrix in front of it and one behind, rank x (in + out)."""
    hidden, inside = shape.hidden, shape.intermediate
    query, pair = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    widths = {
        "q_proj": hidden + query, "k_proj": hidden + pair, "v_proj": hidden + pair, "o_proj": query + hidden,
        "gate_proj": hidden + inside, "up_proj": hidden + inside, "down_proj": inside + hidden,
        "qkv_proj": hidden + query + 2 * pair, "gate_up_proj": hidden + 2 * inside,
    }  # fmt: skip
    # A layer of another name is counted like the widest.
    return shape.layers * rank * sum(widths.get(name, max(widths.values())) for name in targets)


def has_tied_head(config: Mapping[str, Any]) -> bool:
    """Whether the head is the embedding."""
    text = config.get("text_config") or config
    return bool(text.get("tie_word_embeddings", text.get("model_type") in TIED))


def rank_memory(shape: ModelShape, plan: RankPlan) -> Parts:
    """Of one rank at its fullest moment."""
    itemsize, count = BYTES[plan.dtype], shape.parameters
    parts = [*_states(shape, plan)]
    if plan.critic:
        parts.append(("critic", sum(size for _, size in _states(shape, plan))))
    training = _activation_bytes(shape, plan) + _layer(shape, plan) + _head(shape, plan)
    frozen = 0.0
    if plan.reference:
        parameters = count if plan.teacher is None else plan.teacher
        frozen = itemsize * (parameters / plan.ranks if plan.zero_stage == 3 else parameters)
    if plan.reference and plan.offload_reference:
        # It comes for its own passes, which keep no activations, and leaves before the first gradient.
        visiting = 0.0 if plan.zero_stage == 3 else frozen
        training, frozen = max(training, visiting + _layer(shape, plan) + _head(shape, plan)), 0.0
    if frozen:
        parts.append(("reference", frozen))
    part = f" 1/{plan.sequence_parallel} of" if plan.sequence_parallel > 1 else ""
    return (*parts, (f"activations of{part} a row of {plan.row_tokens} tokens", training))


def moved_bytes(shape: ModelShape, plan: RankPlan) -> float:
    """What a rank takes along to host memory from a card that is an engine's at times: weights, optimizer and frozen
    models. Gradients are gone after a step."""
    return sum(size for name, size in rank_memory(shape, plan)[:-1] if name != "gradients")


def _states(shape: ModelShape, plan: RankPlan) -> Parts:
    """Weights, gradients and optimizer of one trained model, or of a frozen one and the adapter that is trained."""
    if plan.adapter:
        # DeepSpeed sees the adapter alone. ZeRO-3 is refused with one: the model is whole on every rank.
        adapter = replace(shape, parameters=plan.adapter, vocab=0)
        (_, adapter_bytes), *rest = _states(adapter, replace(plan, adapter=0))
        return (("weights", float(BYTES[plan.dtype] * shape.parameters)), ("adapter", adapter_bytes), *rest)
    itemsize, count, part = BYTES[plan.dtype], float(shape.parameters), shape.parameters / plan.ranks
    bf16, ends = plan.dtype == "bfloat16", 2 * shape.vocab * shape.hidden * BYTES[plan.dtype]
    buckets = plan.buckets * min(BUCKET_PARAMETERS, shape.parameters) * itemsize + ends
    # AdamW's two moments, and masters in fp32, which only ZeRO-3 omits if the weights are fp32 already.
    optimizer = (8 if plan.zero_stage == 3 and not bf16 else 12) * part
    if plan.zero_stage == 1:
        # Gradients that bf16 ones are added up in stay whole in fp32 on every rank: DeepSpeed's BF16_Optimizer.
        weights, gradients = itemsize * count, (4 + itemsize if bf16 else itemsize) * count
    else:
        weights = itemsize * count
        gradients = 4 * part * (2 if bf16 else 1) + buckets  # twice: the step makes a copy for AdamW
    if plan.zero_stage == 3:
        live = min(LIVE_PARAMETERS, shape.parameters) * itemsize + ends / 2
        weights, gradients = itemsize * part + live, 4 * part
        if plan.offload == "all":
            weights = live
    if plan.offload != "none":
        optimizer, gradients = 0.0, min(gradients, buckets)
    return (("weights", weights), ("gradients", gradients), ("optimizer", optimizer))


def host_memory(shape: ModelShape, plan: RankPlan, ranks: int) -> Parts:
    """Of a node's RAM, what this many ranks keep there at their fullest moment, which is while a checkpoint is written.

    Offloaded are masters, two moments and the gradients that the step reads: 16 bytes a parameter.
    """
    itemsize, models = BYTES[plan.dtype], 2 if plan.critic else 1
    share = (plan.adapter or shape.parameters) * ranks / plan.ranks
    parts = []
    if plan.offload != "none":
        parts.append(("offloaded", share * (16 + (itemsize if plan.offload == "all" else 0)) * models))
    if plan.reference and plan.offload_reference:
        parameters = ranks * float(shape.parameters if plan.teacher is None else plan.teacher)
        parts.append(("reference", itemsize * (parameters / plan.ranks if plan.zero_stage == 3 else parameters)))
    if plan.alternates:  # torch rounds pinned blocks up to powers of two: by once to twice, and by 1.5 in the middle
        away = moved_bytes(shape, plan) + itemsize * shape.parameters  # a rank's, and its engine's weights
        parts.append(("off the cards", 1.5 * ranks * away))
    return (*parts, ("a checkpoint", checkpoint_bytes(shape, plan) * ranks / plan.ranks))


def checkpoint_bytes(shape: ModelShape, plan: RankPlan) -> float:
    """On disk, and over all ranks in host memory from its copying to its writing: masters and moments, under ZeRO-1
    and 2 the weights as DeepSpeed keeps them, and the weights for everybody."""
    return float(plan.adapter or shape.parameters) * parameter_bytes(plan.dtype, plan.zero_stage, critic=plan.critic)


def parameter_bytes(dtype: str, zero_stage: int, *, critic: bool) -> int:
    """`checkpoint_bytes` per parameter."""
    itemsize, models = BYTES[dtype], 2 if critic else 1
    return (12 + (itemsize if zero_stage < 3 else 0)) * models + itemsize


def _activation_bytes(shape: ModelShape, plan: RankPlan) -> float:
    """Of the forward pass, for the backward pass: a hidden state for each layer, or all that the layers computed."""
    itemsize = BYTES[plan.dtype]
    if plan.checkpointing:
        return float(shape.layers * plan.own_tokens * shape.hidden * itemsize)
    return (shape.layers - 1) * _layer(shape, plan)


def _layer(shape: ModelShape, plan: RankPlan) -> float:
    return plan.own_tokens * shape.token_bytes * BYTES[plan.dtype]


def _head(shape: ModelShape, plan: RankPlan) -> float:
    """Logits of a chunk as the head gives them, three times in fp32 (logits, log-probabilities, their exponentials),
    the gradients of both, and that of the head's weight. Those of an fp32 head are fp32 already."""
    itemsize, logits = BYTES[plan.dtype], min(plan.logit_chunk, plan.own_tokens) * shape.vocab
    return logits * ((2 * itemsize if itemsize < 4 else 0) + 4 * 4) + shape.vocab * shape.hidden * itemsize


def engine_memory(shape: ModelShape, plan: EnginePlan) -> EngineMemory:
    itemsize, split = BYTES[plan.dtype], plan.tensor_parallel
    weights = itemsize * shape.parameters / split
    working = ENGINE_TOKENS * shape.token_bytes * itemsize / split + 2 * plan.max_num_seqs * shape.vocab * 4
    adapter = float(itemsize * plan.adapter)  # every process of a divided engine may hold one of its matrices whole
    cache = plan.card * plan.share - weights - working - adapter
    fixed = (("weights", weights), *((("adapter", adapter),) if adapter else ()), ("one step", working))
    return EngineMemory(fixed=fixed, cache=cache, tokens=cache / kv_bytes(shape, plan.dtype, split))


def kv_bytes(shape: ModelShape, dtype: str, ways: int) -> int:
    """Of a token's keys and values on each of the `ways` GPUs that an engine is divided among."""
    return 2 * shape.layers * max(1, shape.kv_heads // ways) * shape.head_dim * BYTES[dtype]


def scoring_share(vocab: int, chunk: int, card: float, most: float) -> float:
    """Of a card of so many bytes that an engine may take which gives log-probabilities of prompts, at most `most`.

    vLLM computes them for a chunk of tokens at once, over the whole vocabulary on each card, outside of what it
    profiles. Rounded down to a hundredth; at least one.
    """
    free_share = 1.0 - (SCORE_BYTES * chunk * vocab + OUTSIDE) / card
    return max(0.01, min(most, math.floor(100 * free_share) / 100))


def total(parts: Parts) -> float:
    return sum(size for _, size in parts)
