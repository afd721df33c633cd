"""The policy: a pretrained model, or a small one built from nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class ScratchModel:
    """A small policy with the Qwen3 architecture that is built from scratch if `model.path` is null."""

    hidden_size: int = 128
    """Width of the residual stream. With the other defaults: 0.7 M parameters, trained in minutes on two cores."""
    intermediate_size: int = 384
    """Width inside the feed-forward layers."""
    num_layers: int = 3
    """Number of transformer layers."""
    num_heads: int = 4
    """Number of attention heads per layer."""
    num_kv_heads: int = 2
    """Number of key and value heads per layer; several attention heads share each of them."""
    head_dim: int = 32
    """Width of one attention head. Only the sizes that vLLM's CPU attention supports are accepted."""
    vocab_size: int = 512
    """Number of tokens in the vocabulary. The tokenizer is trained on the environment's own texts; each digit is a
    token."""

    def __post_init__(self) -> None:
        known = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
        require(self.head_dim in known, "model.scratch.head_dim", self.head_dim, f"one of {known}")
        sizes = ("num_kv_heads", "hidden_size", "intermediate_size", "num_layers")
        require_bounds(self, "model.scratch.", "at least 1", *sizes)
        shared = self.num_heads >= 1 and self.num_heads % self.num_kv_heads == 0
        require(shared, "model.scratch.num_heads", self.num_heads, f"a multiple of num_kv_heads={self.num_kv_heads}")
        require(self.vocab_size >= 300, "model.scratch.vocab_size", self.vocab_size, "at least 300: bytes and tags")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The policy: its weights, number formats and activation checkpointing."""

    path: Optional[str] = None
    """Name of a model on the Hugging Face hub, or a local folder with config, weights and tokenizer. null: a new model
    as in `model.scratch`."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the weights. auto: float32 on a CPU, bfloat16 on GPUs."""
    gradient_checkpointing: Optional[bool] = None
    """Whether activations are recomputed in the backward pass instead of kept: less memory, about a third more compute.
    null: true on GPUs, false on a CPU."""
    fp32_head: bool = False
    """Whether logits are computed in float32 from bfloat16 weights, in the learner and in the engines: a smaller
    log-prob gap between them, for more time in the head. No effect with float32 weights."""
    scratch: ScratchModel = field(default_factory=ScratchModel)
