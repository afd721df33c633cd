"""The vLLM engines of the rollout workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The vLLM engine of a rollout worker; each worker has one."""

    max_model_len: int = 512
    """Context window in tokens: the prompt and everything after it. A prompt that does not fit is a data failure. At
    most the positions that the model was trained on, unless `learner.rope_theta_scale` lengthens them."""
    max_num_seqs: int = 128
    """Number of completions that one engine samples at the same time. Further requests queue outside the engine. More
    is faster until the cores or the KV cache are full."""
    kv_cache_mb: int = 256
    """KV cache of one engine on a CPU, in MiB. On a GPU `gpu_memory_utilization` sets its size."""
    gpu_memory_utilization: float = 0.85
    """Share of a GPU's memory that an engine takes, for weights and KV cache together. Ignored on a CPU."""
    prefix_cache: bool = True
    """Whether the KV cache of equal prefixes is reused, such as that of the prompt that all rollouts of a group
    share."""
    enforce_eager: Optional[bool] = None
    """Whether the engine runs the model eagerly. false compiles the model and captures graphs: minutes at start-up,
    faster sampling. null: false on GPUs, true on a CPU."""
    tensor_parallel: int = 1
    """Number of processes that one engine divides the model among (tensor parallelism), all on one node; on GPUs each
    has its own GPU. For models that do not fit on one GPU. It must divide the number of attention heads."""
    vllm: dict[str, Any] = field(default_factory=dict)
    """Further arguments of vLLM's engine under vLLM's own names, such as `{max_num_batched_tokens: 8192,
    kv_cache_dtype: fp8}`. A name that vLLM does not have, or that another key of rlsys sets, is refused."""

    def __post_init__(self) -> None:
        require(self.max_model_len >= 16, "engine.max_model_len", self.max_model_len, "at least 16")
        require_bounds(self, "engine.", "at least 1", "max_num_seqs", "kv_cache_mb", "tensor_parallel")
        share = self.gpu_memory_utilization
        require(0 < share < 1, "engine.gpu_memory_utilization", share, "between 0 and 1")
