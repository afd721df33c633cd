"""What an engine is started with, by vLLM's names."""

from __future__ import annotations

from typing import Any

from actors.engine_worker import ImportHere
from actors.specs import EngineSpec
from rlsys.config.model import ADAPTER_RANKS, LoraConfig
from rlsys.probe import SAMPLES

SPARE = SAMPLES  # sequences in addition to `max_num_seqs`: for a probe, when every seat is taken


def engine_arguments(spec: EngineSpec) -> Any:
    from vllm import AsyncEngineArgs

    optional: dict[str, Any] = {}
    if not spec.chunked_prefill:
        optional["enable_chunked_prefill"] = False
        optional["max_num_batched_tokens"] = max(spec.max_model_len, 8192)
    if spec.kv_cache_mb is not None:
        optional["kv_cache_memory_bytes"] = spec.kv_cache_mb << 20
    if spec.block_size is not None:
        optional["block_size"] = spec.block_size
    if spec.lora is not None:
        optional |= adapter_arguments(spec.lora)
    if spec.sleeps:
        optional["enable_sleep_mode"] = True
    if spec.fp32_head:
        optional["hf_overrides"] = {"head_dtype": "float32"}
    if spec.tensor_parallel > 1:  # by name: in a placement group vLLM would take Ray's, with its own actors
        optional["distributed_executor_backend"] = "mp"
    arguments: dict[str, Any] = dict(
        model=spec.model_path,
        dtype=spec.dtype,
        max_model_len=spec.max_model_len,
        max_num_seqs=spec.max_num_seqs + SPARE,
        scheduling_policy="priority",
        seed=spec.seed,
        enable_prefix_caching=spec.prefix_cache,
        enforce_eager=spec.enforce_eager,
        gpu_memory_utilization=spec.gpu_memory_utilization,
        logprobs_mode="processed_logprobs",
        tensor_parallel_size=spec.tensor_parallel,
        worker_extension_cls=spec.extension,
        additional_config=ImportHere(),
        disable_log_stats=True,  # vLLM's own loggers; ours is passed below
        **optional,
    )
    return AsyncEngineArgs(**arguments | dict(spec.vllm))  # `actors.vllm_arguments` keeps our own out of the last


def adapter_arguments(lora: LoraConfig) -> dict[str, Any]:
    """One adapter, whose number never changes: none is ever evicted. Targets by name, and the head is none of them:
    vLLM 0.32 would wrap the logits of sampled positions alone, and die of the first `prompt_logprobs`."""
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": 1,
        "max_lora_rank": next(rank for rank in ADAPTER_RANKS if rank >= lora.rank),
        "lora_target_modules": list(lora.targets),
    }
