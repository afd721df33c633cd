"""The core's configuration: one tree of frozen dataclasses, checked before anything starts.

Algorithms, environments and rewards keep their own dataclass beside their code; `launch.run.wire` puts the tree
together. A YAML holds only differences. Values that follow from others are properties; `--dry-run` shows their
arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from rlsys.errors import require


@dataclass(frozen=True, kw_only=True)
class ScratchModel:
    """A small Qwen3-architecture policy built from nothing, used when `model.path` is null."""

    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    """vLLM's CPU attention knows 32, 64, 80, 96, 112, 128, 160, 192, 224, 256 and 512."""
    vocab_size: int = 512
    """Byte-level BPE trained on the environment's own text; digits are single tokens."""

    def __post_init__(self) -> None:
        known = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
        require(self.head_dim in known, "model.scratch.head_dim", self.head_dim, f"one of {known}")
        require(self.num_kv_heads >= 1, "model.scratch.num_kv_heads", self.num_kv_heads, "at least 1")
        shared = self.num_heads >= 1 and self.num_heads % self.num_kv_heads == 0
        require(shared, "model.scratch.num_heads", self.num_heads, f"a multiple of num_kv_heads={self.num_kv_heads}")
        for key in ("hidden_size", "intermediate_size", "num_layers"):
            require(getattr(self, key) >= 1, f"model.scratch.{key}", getattr(self, key), "at least 1")
        require(self.vocab_size >= 300, "model.scratch.vocab_size", self.vocab_size, "at least 300: bytes and tags")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    path: Optional[str] = None
    """A Hugging Face hub name or a local folder with config, weights and tokenizer; null builds `scratch`."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: float32 on CPU, bfloat16 on GPU."""
    gradient_checkpointing: bool = False
    scratch: ScratchModel = field(default_factory=ScratchModel)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """vLLM, one engine per rollout worker."""

    max_model_len: int = 512
    """Tokens of prompt and everything after it; longer prompts are a typed data failure."""
    max_num_seqs: int = 128
    kv_cache_mb: int = 256
    """KV cache of one engine on a CPU; on a GPU `gpu_memory_utilization` decides."""
    gpu_memory_utilization: float = 0.85
    prefix_cache: bool = True
    enforce_eager: bool = True
    """False compiles and captures graphs: minutes at start-up, worth it on GPUs."""

    def __post_init__(self) -> None:
        require(self.max_model_len >= 16, "engine.max_model_len", self.max_model_len, "at least 16")
        require(self.max_num_seqs >= 1, "engine.max_num_seqs", self.max_num_seqs, "at least 1")
        require(self.kv_cache_mb >= 1, "engine.kv_cache_mb", self.kv_cache_mb, "at least 1")
        require(
            0 < self.gpu_memory_utilization < 1,
            "engine.gpu_memory_utilization",
            self.gpu_memory_utilization,
            "between 0 and 1",
        )


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    workers: int = 1
    threads: int = 1
    """CPU threads of one engine."""
    max_turn_tokens: int = 64
    max_response_tokens: Optional[int] = None
    """Of a whole episode, the environment's tokens included; null leaves it to `engine.max_model_len`."""
    temperature: float = 1.0
    top_p: float = 1.0
    infra_attempts: int = 3
    """How often a group is started when workers die under it, before it is recorded as failed."""
    infra_retries: int = 2
    """How often one episode is played again when a tool or the engine failed it, or its scoring is."""
    data_retries: int = 1
    """The same where an environment or a record broke it."""
    grader_workers: int = 1
    """Processes per rollout worker that compare mathematical answers; they start when the first is needed."""
    grader_deadline_s: float = 5.0
    """Of one answer."""
    episode_timeout_s: float = 300.0
    call_timeout_s: float = 120.0
    """Deadline of every control call to a worker (ping, weights)."""
    start_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        require(self.workers >= 1, "rollout.workers", self.workers, "at least 1")
        require(self.threads >= 1, "rollout.threads", self.threads, "at least 1")
        require(self.max_turn_tokens >= 1, "rollout.max_turn_tokens", self.max_turn_tokens, "at least 1")
        response = self.max_response_tokens
        require(response is None or response >= 1, "rollout.max_response_tokens", response, "at least 1, or null")
        require(0 < self.temperature <= 2, "rollout.temperature", self.temperature, "above 0 and at most 2")
        require(0 < self.top_p <= 1, "rollout.top_p", self.top_p, "above 0 and at most 1")
        require(self.infra_attempts >= 1, "rollout.infra_attempts", self.infra_attempts, "at least 1")
        for key in ("infra_retries", "data_retries"):
            require(getattr(self, key) >= 0, f"rollout.{key}", getattr(self, key), "0 or more")
        require(self.grader_workers >= 1, "rollout.grader_workers", self.grader_workers, "at least 1")
        for key in ("grader_deadline_s", "episode_timeout_s", "call_timeout_s", "start_timeout_s"):
            require(getattr(self, key) > 0, f"rollout.{key}", getattr(self, key), "above 0")


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """DeepSpeed, one engine per rank."""

    ranks: int = 1
    threads: int = 1
    """CPU threads of one rank."""
    zero_stage: Literal[1, 2, 3] = 2
    lr: float = 1e-6
    critic_lr: float = 1e-5
    """Of the critic, where the algorithm has one; same schedule."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    final_lr_ratio: float = 0.1
    """Where the line or the cosine ends, as a share of the rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip_grad: float = 1.0
    tokens_per_row: int = 4096
    """Packed micro-batch budget; a longer sample gets a row of its own."""
    logit_chunk: int = 1024
    """Tokens whose logits exist at once: no [tokens, vocabulary] tensor is ever held."""
    behavior: Literal["engine", "learner"] = "engine"
    """Whose log-probabilities stand for the policy that sampled. learner: computed again before the update, for tokens
    of the version being trained; older tokens keep the engine's, for their weights are gone."""
    reference: Literal["stage", "run"] = "stage"
    """The frozen model that a KL term compares with: the weights that the stage began with, or the run."""
    offload_reference: bool = False
    """Keep the reference in host memory between its passes (GPUs only)."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What DeepSpeed keeps in host memory: all is the optimizer and, under ZeRO-3, the weights too (GPUs only)."""
    rope_theta_scale: float = 1.0
    """Multiplies the model's RoPE base, for contexts longer than it was trained on; saved with the model."""
    update_timeout_s: float = 1800.0
    start_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        require(self.ranks >= 1, "learner.ranks", self.ranks, "at least 1")
        require(self.threads >= 1, "learner.threads", self.threads, "at least 1")
        require(self.lr > 0, "learner.lr", self.lr, "above 0")
        require(self.critic_lr > 0, "learner.critic_lr", self.critic_lr, "above 0")
        require(self.rope_theta_scale > 0, "learner.rope_theta_scale", self.rope_theta_scale, "above 0")
        fits = self.offload != "all" or self.zero_stage == 3
        require(fits, "learner.offload", self.offload, "none or optimizer, unless learner.zero_stage=3")
        require(self.tokens_per_row >= 1, "learner.tokens_per_row", self.tokens_per_row, "at least 1")
        require(self.logit_chunk >= 1, "learner.logit_chunk", self.logit_chunk, "at least 1")
        require(self.clip_grad > 0, "learner.clip_grad", self.clip_grad, "above 0")
        require(self.warmup_steps >= 0, "learner.warmup_steps", self.warmup_steps, "0 or more")
        require(0 <= self.final_lr_ratio <= 1, "learner.final_lr_ratio", self.final_lr_ratio, "between 0 and 1")
        require(self.weight_decay >= 0, "learner.weight_decay", self.weight_decay, "0 or more")
        require(all(0 <= beta < 1 for beta in self.betas), "learner.betas", self.betas, "two numbers from 0 to below 1")
        for key in ("update_timeout_s", "start_timeout_s"):
            require(getattr(self, key) > 0, f"learner.{key}", getattr(self, key), "above 0")


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """The asynchronous loop of an `rl` stage."""

    groups_per_step: int = 32
    """Tasks per optimizer step."""
    group_size: int = 8
    """Trajectories per task."""
    max_policy_lag: int = 1
    """How many versions the oldest token of a trajectory may be behind; 0 is synchronous, on-policy RL."""
    max_token_lag: Optional[int] = None
    """Tokens more versions behind than this are context only; null trains them all, as does max_policy_lag or more."""
    mismatch_limit: float = 0.1
    """Engine-learner log-probability gap on the probe past which the engine is refitted, then the run stops."""
    max_failed_share: float = 0.5
    """Stop with the reason when more than this share of a step's trajectories are failures."""

    def __post_init__(self) -> None:
        require(self.groups_per_step >= 1, "loop.groups_per_step", self.groups_per_step, "at least 1")
        require(self.group_size >= 1, "loop.group_size", self.group_size, "at least 1")
        require(self.max_policy_lag >= 0, "loop.max_policy_lag", self.max_policy_lag, "0 or more")
        lag = self.max_token_lag
        require(lag is None or lag >= 0, "loop.max_token_lag", lag, "0 or more, or null")
        require(self.mismatch_limit > 0, "loop.mismatch_limit", self.mismatch_limit, "above 0")
        require(0 <= self.max_failed_share <= 1, "loop.max_failed_share", self.max_failed_share, "between 0 and 1")

    @property
    def slots(self) -> int:
        """Groups that may be unfinished or untrained at once: the staleness bound, kept by admission."""
        return self.groups_per_step * (1 + self.max_policy_lag)


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    tasks: int = 200
    """At most this many held-out tasks."""
    samples: int = 1
    """Sampled answers per task, besides the greedy one."""
    temperature: float = 1.0
    concurrency: int = 256
    """Episodes in flight."""
    every: int = 0
    """Steps of an sft or dpo stage between measurements of its held-out loss; 0: never."""
    share: float = 0.1
    """Of the prompts in a stage's `data`, how many are held out for that loss; `tasks` of them at most."""

    def __post_init__(self) -> None:
        for key in ("tasks", "samples", "concurrency"):
            require(getattr(self, key) >= 1, f"eval.{key}", getattr(self, key), "at least 1")
        require(0 < self.temperature <= 2, "eval.temperature", self.temperature, "above 0 and at most 2")
        require(self.every >= 0, "eval.every", self.every, "0 or more")
        require(0 < self.share < 1, "eval.share", self.share, "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Trajectories to train on later: of a `generate` stage, and of `rlsys generate`."""

    samples: int = 4
    """Trajectories per training task."""
    temperature: float = 0.9
    top_p: float = 1.0
    tasks: Optional[int] = None
    """At most this many training tasks; null plays all."""
    concurrency: int = 256
    """Episodes in flight."""
    keep: Literal["all", "best", "correct"] = "all"
    """best: those with the highest reward of their task. correct: those that an accuracy counts as solved."""
    min_reward: Optional[float] = None
    """What is kept has at least this reward."""
    per_task: Optional[int] = None
    """At most this many of a task are kept, those with the highest rewards; null keeps every different one."""

    def __post_init__(self) -> None:
        for key in ("samples", "concurrency"):
            require(getattr(self, key) >= 1, f"generate.{key}", getattr(self, key), "at least 1")
        for key in ("tasks", "per_task"):
            found = getattr(self, key)
            require(found is None or found >= 1, f"generate.{key}", found, "at least 1, or null")
        least = self.min_reward
        require(least is None or math.isfinite(least), "generate.min_reward", least, "a finite number, or null")
        require(0 < self.temperature <= 2, "generate.temperature", self.temperature, "above 0 and at most 2")
        require(0 < self.top_p <= 1, "generate.top_p", self.top_p, "above 0 and at most 1")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    every: int = 20
    """Steps between checkpoints; one more is written at each stage's end and at a stop."""
    keep: int = 2

    def __post_init__(self) -> None:
        require(self.every >= 1, "checkpoint.every", self.every, "at least 1")
        require(self.keep >= 1, "checkpoint.keep", self.keep, "at least 1")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: GPUs where the Ray cluster has them."""
    address: Optional[str] = None
    """A running Ray cluster; null uses RAY_ADDRESS, else starts a local one."""
    dashboard_port: Optional[int] = None
    """Of a local cluster; null starts it without a dashboard."""
    object_store_mb: int = 256

    def __post_init__(self) -> None:
        require(self.object_store_mb >= 80, "cluster.object_store_mb", self.object_store_mb, "at least 80")


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """auto: online when a key is configured, else offline."""
    project: str = "rlsys"


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of a recipe."""

    name: str
    kind: str
    """A name in `launch.stages.STAGES`: sft, rl, generate or dpo."""
    steps: int
    """Optimizer steps. 0 in a stage that trains nothing, and as long as `epochs` is set."""
    config: RecipeConfig
    """The whole configuration, as it holds in this stage."""
    data: Optional[str] = None
    """What to train on: the name of an earlier `generate` stage, or the path of a JSON-lines file."""
    epochs: Optional[float] = None
    """Set only over the data of an earlier stage: its size, and with it the number of steps, is not known yet."""


@dataclass(frozen=True, kw_only=True)
class RecipeConfig:
    """Everything but the list of stages. `env`, `reward` and `algorithm` hold the dataclass that their `name` picks."""

    name: str = "run"
    seed: int = 0
    model: ModelConfig = field(default_factory=ModelConfig)
    env: Any = None
    reward: Any = None
    algorithm: Any = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)

    def __post_init__(self) -> None:
        plain = bool(self.name) and all(letter.isalnum() or letter in "-_." for letter in self.name)
        require(
            plain and not self.name.startswith("."), "name", self.name, "letters, digits, - _ . : it names a folder"
        )
        require(
            self.rollout.max_turn_tokens < self.engine.max_model_len,
            "rollout.max_turn_tokens",
            self.rollout.max_turn_tokens,
            f"less than engine.max_model_len={self.engine.max_model_len}",
        )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A recipe, as a run needs it."""

    recipe: RecipeConfig
    """What is given outside of `stages`. Model, engines and learner ranks are the same in all stages."""
    stages: tuple[StageConfig, ...]
    """In the order in which they run."""
