"""The one table of what differs between a laptop and a GPU node, and the keys of a recipe that it fills in."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from rlsys.config.cluster import ClusterConfig
from rlsys.config.engine import EngineConfig
from rlsys.config.learner import LearnerConfig
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput

T = TypeVar("T")
RunningKV = Literal["keep", "recompute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    torch_device: str
    dtype: str  # of policy weights, in the learner and in the engine
    held_dtype: str | None  # of the learner's weights, whatever `model.dtype` is: then that is of products; None: it
    dist_backend: str
    attention: tuple[str, ...]  # transformers attention keys for packed rows: the first that is there and fits
    overlap_comm: bool  # DeepSpeed's communication streams
    block_size: int | None  # of the engine's KV cache; None leaves it to vLLM
    chunked_prefill: bool
    gpus_per_actor: int
    # What these keys are where the recipe has null.
    gradient_checkpointing: bool  # model.gradient_checkpointing
    enforce_eager: bool  # engine.enforce_eager
    engine_threads: int  # rollout.threads
    tokens_per_row: int  # learner.tokens_per_row
    rows_in_order: bool  # learner.rows_in_order
    running_kv: RunningKV  # loop.running_kv
    object_store_mb: int  # cluster.object_store_mb


DEVICES: dict[str, Device] = {
    # fp32: bf16 is emulated on most CPUs, and where it is not, only matrix products gain: the learner holds float32 and
    # rounds the factors of products (learners/kernels.py). Blocks of 32: vLLM's CPU default of 128 shares no short
    # prompt. Recompute: contexts are short here, and engine and learner then agree to rounding on every token.
    "cpu": Device(
        torch_device="cpu",
        dtype="float32",
        held_dtype="float32",
        dist_backend="gloo",
        attention=("packed_sdpa",),
        overlap_comm=False,
        block_size=32,
        chunked_prefill=False,
        gpus_per_actor=0,
        gradient_checkpointing=False,
        enforce_eager=True,
        engine_threads=1,
        tokens_per_row=4096,
        rows_in_order=True,
        running_kv="recompute",
        object_store_mb=256,
    ),
    # A store of 8 GiB: a batch of 33 million tokens is 1.5 GB (46 bytes a token), and lies there next to its groups.
    # Rows of 16k hide the all-reduce that ZeRO-2 makes after each; without checkpointing their activations fit no card.
    "cuda": Device(
        torch_device="cuda",
        dtype="bfloat16",
        held_dtype=None,
        dist_backend="nccl",
        attention=("flash_attention_2", "packed_varlen"),
        overlap_comm=True,
        block_size=None,
        chunked_prefill=True,
        gpus_per_actor=1,
        gradient_checkpointing=True,
        enforce_eager=False,
        engine_threads=8,
        tokens_per_row=16384,
        rows_in_order=False,
        running_kv="keep",
        object_store_mb=8192,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingUnits:
    """The largest error that rounding brings into a layer's result, as a share of it."""

    products: float  # of what a linear layer gives
    rest: float
    cached: float | None = None  # of keys and values, where the engine's cache holds them more coarsely


# Of bfloat16 half of the last bit: its sums are float32, and each is rounded once. Of float32 the whole of it: its sums
# are rounded as they are made.
UNITS = {"float32": 2.0**-23, "bfloat16": 2.0**-8}
QUANTISED_UNIT = 2.0**-4  # of fp8 with 3 bits behind the first, or of 8 bits for the largest of a few hundred numbers
PLAIN = (None, "auto", "bfloat16")  # values of vLLM's arguments that quantise nothing


def rounding_units(recipe: RecipeConfig, device: Device) -> RoundingUnits:
    """Of the coarser side, which is the engine: the learner never quantises."""
    unit, vllm = UNITS[dtype_of(recipe.model.dtype, device)], recipe.engine.vllm
    products = unit if vllm.get("quantization") in PLAIN else QUANTISED_UNIT
    return RoundingUnits(
        products=products, rest=unit, cached=None if vllm.get("kv_cache_dtype") in PLAIN else QUANTISED_UNIT
    )


FILLED_IN = (
    ("model", "gradient_checkpointing"),
    ("engine", "enforce_eager"),
    ("rollout", "threads"),
    ("learner", "tokens_per_row"),
    ("learner", "rows_in_order"),
    ("loop", "running_kv"),
    ("cluster", "object_store_mb"),
    ("rollout", "in_flight"),
)


def gpu_env(gpus: float) -> dict[str, str]:
    """Variables of an actor that takes so many GPUs: to one that takes none Ray would show all of its node."""
    return {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}


def choose(name: str, num_gpus: float) -> Device:
    """`auto` means the GPU wherever the cluster has one."""
    if name == "auto":
        name = "cuda" if num_gpus >= 1 else "cpu"
    return DEVICES[name]


def dtype_of(dtype: str, device: Device) -> str:
    """`auto` is the device's."""
    return device.dtype if dtype == "auto" else dtype


def resolve(recipe: RecipeConfig, device: Device) -> RecipeConfig:
    """The recipe with what it leaves to the device filled in. Everything behind this sees plain values."""
    model, loop = recipe.model, recipe.loop
    return replace(
        recipe,
        model=replace(model, gradient_checkpointing=_or(model.gradient_checkpointing, device.gradient_checkpointing)),
        engine=resolve_engine(recipe.engine, device),
        rollout=replace(
            recipe.rollout,
            threads=_or(recipe.rollout.threads, device.engine_threads),
            in_flight=_or(recipe.rollout.in_flight, 2 * recipe.engine.max_num_seqs),
        ),
        learner=resolve_learner(recipe.learner, device),
        loop=replace(
            loop,
            running_kv=loop.running_kv or ("recompute" if recipe.cluster.placement == "sleep" else device.running_kv),
        ),
        cluster=resolve_cluster(recipe.cluster, device),
    )


def describe_filled_keys(recipe: RecipeConfig, device: Device) -> str:
    """The keys that the recipe leaves to this device, and what they are there, in one line."""
    full = resolve(recipe, device)
    settings = [
        f"{part}.{key}={json.dumps(getattr(getattr(full, part), key))}"
        for part, key in FILLED_IN
        if getattr(getattr(recipe, part), key) is None
    ]
    return f"{device.torch_device}: {', '.join(settings) or 'every key is given'}"


def resolve_engine(engine: EngineConfig, device: Device) -> EngineConfig:
    """Of a policy or, on its own, of a judge."""
    return replace(engine, enforce_eager=_or(engine.enforce_eager, device.enforce_eager))


def resolve_learner(learner: LearnerConfig, device: Device) -> LearnerConfig:
    """Of a recipe or, on its own, of ranks that no driver started."""
    return replace(
        learner,
        tokens_per_row=_or(learner.tokens_per_row, device.tokens_per_row * learner.sequence_parallel),
        rows_in_order=_or(learner.rows_in_order, device.rows_in_order),
    )


def require_device(learner: LearnerConfig, device: Device) -> None:
    """Raise BadInput for what means nothing on this device."""
    if device.torch_device == "cuda":
        return
    if learner.offload != "none":
        raise BadInput(
            key="learner.offload", found=learner.offload, expected="'none' on a CPU, where everything is there"
        )
    if learner.offload_reference:
        raise BadInput(
            key="learner.offload_reference", found=True, expected="False on a CPU, where everything is there"
        )
    if learner.compile:
        raise BadInput(key="learner.compile", found=True, expected="False on a CPU, whose products are oneDNN's")


def resolve_cluster(cluster: ClusterConfig, device: Device) -> ClusterConfig:
    """Of a recipe or, before anything else, of a local cluster that is to start."""
    return replace(cluster, object_store_mb=_or(cluster.object_store_mb, device.object_store_mb))


def resolve_run(config: RunConfig, device: Device) -> RunConfig:
    """The recipe and every stage of it."""
    stages = tuple(replace(stage, config=resolve(stage.config, device)) for stage in config.stages)
    return replace(config, recipe=resolve(config.recipe, device), stages=stages)


def require_resolved(value: T | None) -> T:
    """A value that `resolve` has filled in."""
    if value is None:
        raise RuntimeError("a recipe is used before its device is known: pass it through rlsys.system.device.resolve")
    return value


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
