"""The learner's ranks: optimizer, schedule, micro-batches, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import require, require_bounds

KLKind = Literal["k1", "k2", "k3"]  # rlsys.losses.kl_estimate
Level = Literal["token", "sequence", "geometric"]  # rlsys.off_policy.log_ratio
Correction = Literal["none", "tis", "mis", "decoupled"]  # rlsys.off_policy.importance_weights


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """The learner: DeepSpeed, with one engine per rank."""

    ranks: int = 1
    """Number of learner processes that train together; on GPUs each has its own GPU. A run may be continued with
    another number."""
    threads: Optional[int] = None
    """Number of CPU threads of one rank. null: on a CPU the rank's share of the machine's cores, on GPUs one. Threads
    sleep while the ranks wait for each other, so that the engines can use the cores meanwhile."""
    zero_stage: Literal[1, 2, 3] = 2
    """ZeRO stage, what the ranks shard among themselves: 1 the optimizer state, 2 also the gradients, 3 also the
    weights. A higher stage takes less memory and more communication. A run may be continued under another stage."""
    sequence_parallel: int = 1
    """Number of ranks that share each micro-batch, for contexts that are too long for one: each holds that part of its
    tokens, and for attention that part of the model's heads, whose number it has to divide. A divisor of `ranks`."""
    lr: float = 1e-6
    """Learning rate of the policy's optimizer at its peak, after warm-up. 1e-6 suits pretrained models; sft of a policy
    built from scratch needs about 1e-3."""
    critic_lr: float = 1e-5
    """Learning rate of the critic's optimizer at its peak, for algorithms with a critic. It follows the same
    schedule."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the learning rate after warm-up, over the steps of the stage."""
    warmup_steps: int = 0
    """Number of steps over which the learning rate rises linearly to `lr`."""
    warmup_ratio: float = 0.0
    """Warm-up as a share of the stage's steps, rounded up. Used if `warmup_steps` is 0."""
    final_lr_ratio: float = 0.1
    """Learning rate at the stage's last step, as a share of `lr`, for the linear and cosine schedules."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of AdamW's first and second moment."""
    weight_decay: float = 0.0
    """Weight decay of AdamW. It applies to matrices only, not to norms and biases."""
    clip_grad: float = 1.0
    """Largest gradient norm. A gradient with a larger norm is scaled down to it."""
    tokens_per_row: Optional[int] = None
    """Number of tokens in one packed micro-batch, at most. Lower it if the learner runs out of memory. A longer sample
    gets its own micro-batch. null: 4096 on a CPU, 16384 on GPUs, times `sequence_parallel`."""
    rows_in_order: Optional[bool] = None
    """Whether an rl stage keeps the rollouts of a group next to each other when it packs micro-batches, so that the
    prompt they share is computed once, which is done on a CPU only. null: true on a CPU, false on GPUs, where it would
    only take more micro-batches."""
    logit_chunk: int = 1024
    """Number of tokens whose logits are in memory at once. Lower it for large vocabularies; the results stay the
    same."""
    compile: bool = False
    """Whether torch compiles the layers of policy, reference and critic, and the log-probs (GPUs only): fewer and
    larger kernels, for one or two minutes of compiling in a run's first update, and numbers that are rounded elsewhere.
    Below ZeRO-3, which gathers weights inside of a layer."""
    behavior: Literal["engine", "learner"] = "engine"
    """Source of the behaviour policy's log-probs. engine: recorded while sampling. learner: recomputed before the
    update, for tokens sampled with the newest weights; older tokens keep the engine's."""
    reference: str = "stage"
    """Reference model of the KL term. stage: the weights at the start of this stage. run: those at the start of the
    run. Otherwise another model, such as a teacher: a folder or a name on the hub, with the policy's vocabulary and
    special tokens."""
    serve_reference: bool = False
    """Whether another model as `reference` runs in a vLLM engine of its own, which all ranks ask for log-probs, and
    which is restarted if it dies, in place of a copy of its weights in each rank. For rl and stepwise stages with
    `rollout.temperature=1.0`."""
    reference_gpus: int = 1
    """Number of GPUs of that engine. On a CPU it has as many threads as a rollout worker's engine."""
    optimizer: Literal["stage", "run"] = "stage"
    """Lifetime of the optimizer's moments. stage: each stage starts with new ones. run: a stage continues with those of
    the previous stage, under its own schedule; both need the same adapter rank, and both a critic or neither."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format in which gradients are summed across ranks. bfloat16 halves the traffic between ranks, and loses
    terms that are 256 times smaller than the sum."""
    offload_reference: bool = False
    """Whether the reference model stays in host memory while it is not needed (GPUs only)."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """Part of the training state that DeepSpeed keeps in host memory (GPUs only). all: the optimizer and the weights;
    it needs ZeRO-3."""
    rope_theta_scale: float = 1.0
    """Factor on the RoPE base, for contexts longer than the model was trained on (Long CoT: 10): its positions become
    `engine.max_model_len` where they are fewer. It is saved with the model."""
    update_timeout_s: float = 1800.0
    """Timeout of an update or another call to the ranks, in seconds. After it the run stops with the reason."""
    ping_timeout_s: float = 120.0
    """Timeout of a ping to a rank, in seconds. Pings run in parallel with updates; a rank that does not answer in time
    counts as hung."""
    start_timeout_s: Optional[float] = None
    """Timeout of the start of the ranks and of their process group, and of the loading of a stage's models, in seconds.
    A model from the hub is downloaded before. null: 300, and three times what the size of the policy and its reference
    takes at 100 MB/s."""
    max_restarts: int = 3
    """Number of restarts of all ranks between two checkpoints, at most, after a rank died or hung. The ranks continue
    from the last checkpoint; the engines stay up. 0: the first death ends the run."""

    @property
    def teacher(self) -> str | None:
        """The other model that `reference` names; None where it is the policy's own weights."""
        return None if self.reference in ("stage", "run") else self.reference

    @property
    def served_teacher(self) -> str | None:
        """The one that has an engine of its own."""
        return self.teacher if self.serve_reference else None

    def __post_init__(self) -> None:
        require(bool(self.reference), "learner.reference", self.reference, "stage, run, or a folder or hub name")
        plain = self.teacher is None or self.rope_theta_scale == 1
        require(plain, "learner.rope_theta_scale", self.rope_theta_scale, "1 with another model as learner.reference")
        another = self.teacher is not None or not self.serve_reference
        require(another, "learner.serve_reference", True, "false without another model as learner.reference")
        alone = self.sequence_parallel == 1 or not self.serve_reference
        require(alone, "learner.serve_reference", True, "false where ranks share rows (learner.sequence_parallel)")
        require_bounds(self, "learner.", "at least 1", "ranks", "logit_chunk", "reference_gpus", "sequence_parallel")
        divides = self.ranks % self.sequence_parallel == 0
        require(
            divides, "learner.sequence_parallel", self.sequence_parallel, f"a divisor of learner.ranks={self.ranks}"
        )
        require_bounds(self, "learner.", "at least 1, or null", "threads", "tokens_per_row")
        seconds = ("update_timeout_s", "ping_timeout_s")
        require_bounds(self, "learner.", "above 0, or null", "start_timeout_s")
        require_bounds(self, "learner.", "above 0", "lr", "critic_lr", "rope_theta_scale", "clip_grad", *seconds)
        require_bounds(self, "learner.", "0 or more", "warmup_steps", "weight_decay", "max_restarts")
        require_bounds(self, "learner.", "between 0 and 1", "warmup_ratio")
        once = not (self.warmup_steps and self.warmup_ratio)
        require(once, "learner.warmup_ratio", self.warmup_ratio, f"0 with learner.warmup_steps={self.warmup_steps}")
        fits = self.offload != "all" or self.zero_stage == 3
        require(fits, "learner.offload", self.offload, "none or optimizer, unless learner.zero_stage=3")
        require(not (self.compile and self.zero_stage == 3), "learner.compile", True, "false with learner.zero_stage=3")
        require(0 <= self.final_lr_ratio <= 1, "learner.final_lr_ratio", self.final_lr_ratio, "between 0 and 1")
        require(all(0 <= beta < 1 for beta in self.betas), "learner.betas", self.betas, "two numbers from 0 to below 1")
