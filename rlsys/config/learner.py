"""The learner's ranks: optimizer, schedule, micro-batches, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """The learner: DeepSpeed, one engine per rank."""

    ranks: int = 1
    """Processes that train together; on GPUs each has a GPU of its own."""
    threads: Optional[int] = None
    """CPU threads of one rank. null: on a CPU the rank's share of the machine's cores, beside a GPU one. They sleep
    while they wait for each other, so that the engine may have the cores meanwhile."""
    zero_stage: Literal[1, 2, 3] = 2
    """What the ranks divide among themselves: 1 the optimizer's state, 2 also the gradients, 3 also the weights.
    A higher stage takes less memory and more communication."""
    lr: float = 1e-6
    """Learning rate after warm-up. 1e-6 suits pretrained models; a policy from nothing wants about 1e-3 for sft."""
    critic_lr: float = 1e-5
    """Learning rate of the critic, for algorithms that have one. It follows the same schedule."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes on after warm-up, over the steps of the stage."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises in a line to `lr`."""
    warmup_ratio: float = 0.0
    """The same as a share of the stage's steps, rounded up, where `warmup_steps` is 0."""
    final_lr_ratio: float = 0.1
    """Learning rate at the stage's last step, as a share of `lr`, for the linear and cosine schedules."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of the gradient's mean and of its square."""
    weight_decay: float = 0.0
    """AdamW's weight decay. It applies to matrices only, not to norms and biases."""
    clip_grad: float = 1.0
    """A gradient with a larger norm is scaled down to this norm."""
    tokens_per_row: Optional[int] = None
    """Tokens of one packed micro-batch: lower it when the learner runs out of memory. A longer sample gets its own.
    null: 4096 on a CPU, 16384 on GPUs."""
    rows_in_order: Optional[bool] = None
    """Whether an rl stage leaves siblings side by side when it packs rows, so that the prompt they share is computed
    once, which only a CPU does. null: true on a CPU, false on GPUs, where it would take more rows for nothing."""
    logit_chunk: int = 1024
    """Tokens whose logits are in memory at once. Lower it for large vocabularies; the numbers stay the same."""
    behavior: Literal["engine", "learner"] = "engine"
    """Where the sampling policy's log-probabilities come from. engine: recorded while sampling. learner: computed again
    before the update, for tokens sampled with the newest weights; older tokens keep the engine's."""
    reference: Literal["stage", "run"] = "stage"
    """The frozen model of the KL term: the weights at the start of this stage, or those at the start of the run."""
    optimizer: Literal["stage", "run"] = "stage"
    """stage: its moments begin anew with each stage. run: a stage begins with those of the stage before it, with a
    schedule of its own; both need the same ranks, ZeRO stage and critic."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format in which the gradients of several ranks are added. bfloat16 halves the traffic between them, and
    loses what is 256 times smaller than the sum."""
    offload_reference: bool = False
    """Keep the reference model in host memory while it is not needed (GPUs only)."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What DeepSpeed keeps in host memory (GPUs only). all is the optimizer and the weights, and needs ZeRO-3."""
    rope_theta_scale: float = 1.0
    """Factor on the RoPE base, for contexts longer than the model was trained on (Long CoT: 10). Saved with it."""
    update_timeout_s: float = 1800.0
    """Seconds that an update or another call to the ranks may take before the run stops with the reason."""
    ping_timeout_s: float = 120.0
    """Seconds that a rank may take to answer a ping, which is asked beside its updates, before it counts as hung."""
    start_timeout_s: float = 300.0
    """Seconds that the ranks may take to start and to find each other."""
    max_restarts: int = 3
    """How often, from one checkpoint to the next, all ranks are started again when one of them died or hangs. They go
    on from the last checkpoint, beside engines that live on. 0 ends the run at the first death."""

    def __post_init__(self) -> None:
        require_bounds(self, "learner.", "at least 1", "ranks", "logit_chunk")
        require_bounds(self, "learner.", "at least 1, or null", "threads", "tokens_per_row")
        seconds = ("update_timeout_s", "ping_timeout_s", "start_timeout_s")
        require_bounds(self, "learner.", "above 0", "lr", "critic_lr", "rope_theta_scale", "clip_grad", *seconds)
        require_bounds(self, "learner.", "0 or more", "warmup_steps", "weight_decay", "max_restarts")
        require_bounds(self, "learner.", "between 0 and 1", "warmup_ratio")
        once = not (self.warmup_steps and self.warmup_ratio)
        require(once, "learner.warmup_ratio", self.warmup_ratio, f"0 beside learner.warmup_steps={self.warmup_steps}")
        fits = self.offload != "all" or self.zero_stage == 3
        require(fits, "learner.offload", self.offload, "none or optimizer, unless learner.zero_stage=3")
        require(0 <= self.final_lr_ratio <= 1, "learner.final_lr_ratio", self.final_lr_ratio, "between 0 and 1")
        require(all(0 <= beta < 1 for beta in self.betas), "learner.betas", self.betas, "two numbers from 0 to below 1")
