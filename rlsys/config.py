"""The core's configuration: one tree of frozen dataclasses, checked before anything starts.

Algorithms, environments and rewards keep their own dataclass beside their code; `launch.config.compose` puts the tree
together. A YAML holds only what differs from the defaults. Values that follow from others are properties, and
`--dry-run` shows their arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional, Union

from rlsys.errors import require, require_bounds
from rlsys.eval_config import EvalConfig as EvalConfig
from rlsys.generate_config import GenerateConfig as GenerateConfig
from rlsys.outer_config import AboutConfig as AboutConfig
from rlsys.outer_config import CheckpointConfig as CheckpointConfig
from rlsys.outer_config import ClusterConfig as ClusterConfig
from rlsys.outer_config import TrajectoriesConfig as TrajectoriesConfig
from rlsys.outer_config import WandbConfig as WandbConfig
from rlsys.outer_config import WeightsConfig as WeightsConfig
from rlsys.verdicts import VerdictsConfig
from rlsys.window_config import WindowConfig as WindowConfig

DataSource = Union[str, dict[str, Optional[int]]]  # a stage, a path, or paths with how many examples of each


@dataclass(frozen=True, kw_only=True)
class ScratchModel:
    """A small Qwen3-architecture policy built from nothing, used when `model.path` is null."""

    hidden_size: int = 128
    """Width of the residual stream. With the other defaults: 0.7 M parameters, trained in minutes on two cores."""
    intermediate_size: int = 384
    """Width inside the feed-forward layers."""
    num_layers: int = 3
    """Transformer layers."""
    num_heads: int = 4
    """Attention heads of a layer."""
    num_kv_heads: int = 2
    """Key and value heads; several attention heads share each of them."""
    head_dim: int = 32
    """Width of one attention head. Only the sizes that vLLM's CPU attention supports are accepted."""
    vocab_size: int = 512
    """Tokens in the vocabulary. The tokenizer is trained on the environment's own texts; each digit is a token."""

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
    path: Optional[str] = None
    """A Hugging Face hub name or a local folder with config, weights and tokenizer; null builds `scratch`."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: float32 on CPU, bfloat16 on GPU."""
    gradient_checkpointing: Optional[bool] = None
    """Recompute activations in the backward pass instead of keeping them: less memory, about a third more compute.
    null: on GPUs."""
    fp32_head: bool = False
    """Logits in float32 from bfloat16 weights, in the learner and in the engines: a smaller gap between them, for some
    time in the head. Nothing changes with float32 weights."""
    scratch: ScratchModel = field(default_factory=ScratchModel)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """vLLM, one engine per rollout worker."""

    max_model_len: int = 512
    """Context window in tokens: the prompt and everything after it. A prompt that does not fit is a data failure."""
    max_num_seqs: int = 128
    """Completions that one engine samples at the same time: its seats, for which further requests wait outside of it.
    More is faster until the cores or the KV cache are full."""
    kv_cache_mb: int = 256
    """KV cache of one engine on a CPU, in MiB. On a GPU `gpu_memory_utilization` decides."""
    gpu_memory_utilization: float = 0.85
    """Share of a GPU's memory that an engine takes, for weights and KV cache together. Ignored on a CPU."""
    prefix_cache: bool = True
    """Reuse the KV cache of equal prefixes, such as the prompt that the siblings of a group share."""
    enforce_eager: Optional[bool] = None
    """false compiles the model and captures graphs: minutes at start-up, faster sampling. null: false on GPUs."""
    tensor_parallel: int = 1
    """Processes that one engine divides the model among, all on one node; on GPUs each has a GPU of its own. For models
    that one GPU does not hold. It must divide the number of attention heads."""
    vllm: dict[str, Any] = field(default_factory=dict)
    """Further arguments of vLLM's engine by vLLM's own names, such as `{max_num_batched_tokens: 8192, kv_cache_dtype:
    fp8}`. A name that vLLM does not have, or that another key of rlsys sets, is refused."""

    def __post_init__(self) -> None:
        require(self.max_model_len >= 16, "engine.max_model_len", self.max_model_len, "at least 16")
        require_bounds(self, "engine.", "at least 1", "max_num_seqs", "kv_cache_mb", "tensor_parallel")
        share = self.gpu_memory_utilization
        require(0 < share < 1, "engine.gpu_memory_utilization", share, "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Playing episodes: the workers, the limits of an episode, and what happens when something breaks."""

    workers: int = 1
    """Rollout workers. Each has an engine of its own, and on GPUs `engine.tensor_parallel` GPUs of its own."""
    min_workers: int = 1
    """How many of them must have a node. One whose node died comes back as soon as another has room; the run goes on
    without it, unless fewer than these are left for `cluster.placement_timeout_s`."""
    threads: Optional[int] = None
    """CPU threads of one engine, divided among its processes. null: 1 on a CPU, 8 beside a GPU."""
    in_flight: Optional[int] = None
    """Episodes that one worker is given at the same time; one group it is given always, and all others wait in the
    driver. `engine.max_num_seqs` of them sample at once, the clock of the rest stands still. null: twice that many, so
    that the engine stays full while the last siblings of a group end, or wait for their tools."""
    max_turn_tokens: int = 64
    """Tokens that the model may write in one message."""
    max_response_tokens: Optional[int] = None
    """Tokens after the prompt in a whole episode, tool results included. null leaves it to `engine.max_model_len`."""
    temperature: float = 1.0
    """Sampling temperature of the episodes. The learner computes its log-probabilities at the same temperature."""
    top_p: float = 1.0
    """Sample only from the most likely tokens that together have this probability. It has to be 1 in an rl stage."""
    infra_attempts: int = 3
    """How often a group is started in all, when workers die while they play it. Once one died it plays alone; only a
    group that was alone when its worker died is a failure after that."""
    infra_retries: int = 2
    """How often an episode is tried again after the engine, a tool or a deadline failed it. If only its scoring failed,
    only that is tried again."""
    data_retries: int = 1
    """How often an episode is tried again after its environment, its record or its chat template raised an error."""
    grader_workers: int = 1
    """Processes per rollout worker that compare mathematical answers. They start when the first one is needed."""
    grader_deadline_s: float = 5.0
    """Seconds that comparing one mathematical answer may take. Past them it is a failure, and no wrong answer."""
    episode_timeout_s: float = 300.0
    """Seconds that one episode may take, tools and scoring included, waiting for a seat in the engine not. Raise it for
    slow tools or long answers."""
    block_timeout_s: float = 30.0
    """Seconds that an environment or a reward may block its worker's other episodes, by a call that is not awaited.
    After that its group fails, and the others are played again; at most half of the shortest `episode_timeout_s`
    of a stage."""
    call_timeout_s: float = 120.0
    """Seconds that a worker may take to answer a control call (a ping, new weights) before it counts as hung."""
    start_timeout_s: float = 300.0
    """Seconds that a worker, or a tool service, may take to start, and making a world and its reward. Raise it for
    large models."""

    def __post_init__(self) -> None:
        counts = ("workers", "max_turn_tokens", "infra_attempts", "grader_workers")
        require_bounds(self, "rollout.", "at least 1", *counts)
        require_bounds(self, "rollout.", "at least 1, or null", "threads", "in_flight", "max_response_tokens")
        least, most = self.min_workers, self.workers
        require(1 <= least <= most, "rollout.min_workers", least, f"1 to rollout.workers={most}")
        require_bounds(self, "rollout.", "above 0 and at most 2", "temperature")
        require_bounds(self, "rollout.", "above 0 and at most 1", "top_p")
        require_bounds(self, "rollout.", "0 or more", "infra_retries", "data_retries")
        seconds = ("grader_deadline_s", "episode_timeout_s", "block_timeout_s", "call_timeout_s", "start_timeout_s")
        require_bounds(self, "rollout.", "above 0", *seconds)


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


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """The asynchronous loop of an `rl` stage."""

    groups_per_step: int = 32
    """Tasks per learner step: groups in rl, demonstrations in sft, pairs in dpo."""
    group_size: int = 8
    """Trajectories per task. Group baselines need at least 2."""
    max_policy_lag: int = 1
    """How many versions of the weights the oldest token of a trajectory may be behind the one being trained. More keeps
    the engines busier; 0 is synchronous, on-policy RL."""
    max_token_lag: Optional[int] = None
    """Tokens further behind than this are not trained, only seen as context. null trains every token. It has an effect
    only below `max_policy_lag`."""
    mismatch_limit: Optional[float] = None
    """Largest mean gap, in nats per token, between engine and learner on the same tokens after a delivery of weights.
    Past it the engine gets the weights once more; if that does not help, the run stops with the reason. null: 0.1 for
    float32, 0.5 for bfloat16."""
    running_kv: Optional[Literal["keep", "recompute"]] = None
    """The KV cache of what is being generated while new weights arrive. keep: generation goes on at once, its later
    tokens sampled by new weights over a cache of old ones, as `mismatch/mixed_versions` shows. recompute: everything in
    flight is prefilled again, exact and slow with long contexts. null: keep on GPUs, recompute on a CPU."""
    publish_deadline_s: float = 60.0
    """Seconds for new weights to reach every engine, and more where the model is large: three times what its size takes
    at the rate of the last delivery, 100 MB/s before there is one. An engine that is late starts no group until it
    holds the newest; the others go on. It also limits how long one node may take to send one bucket (64 MB or one
    tensor) to another."""
    oversample: float = 1.0
    """Groups without signal (all rewards alike) give their places to others, up to this many times `groups_per_step`
    in a step: 3 plays at most three times as many. 1: none does. More than 1 needs an algorithm with a baseline of the
    group."""
    max_failed_share: float = 0.5
    """The run stops with the reason when more than this share of a step's trajectories failed. An evaluation in which
    more failed has no number."""

    def __post_init__(self) -> None:
        require_bounds(self, "loop.", "at least 1", "groups_per_step", "group_size")
        require_bounds(self, "loop.", "0 or more", "max_policy_lag")
        require_bounds(self, "loop.", "0 or more, or null", "max_token_lag")
        require_bounds(self, "loop.", "above 0, or null", "mismatch_limit")
        require_bounds(self, "loop.", "above 0", "publish_deadline_s")
        require(self.oversample >= 1, "loop.oversample", self.oversample, "at least 1")
        require(0 <= self.max_failed_share <= 1, "loop.max_failed_share", self.max_failed_share, "between 0 and 1")

    @property
    def spare(self) -> int:
        """Groups that a step may take beside `groups_per_step`."""
        return int(self.groups_per_step * (self.oversample - 1))

    @property
    def slots(self) -> int:
        """Groups that may be unfinished or untrained at once: the staleness bound, kept by admission."""
        return self.groups_per_step * (1 + self.max_policy_lag)


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Which task comes when in an rl stage (`rlsys/curriculum.py`)."""

    name: Literal["uniform", "mixed", "difficulty", "staged"] = "uniform"
    """uniform: every task once per epoch. mixed: levels by `weights`. difficulty: levels by how often their groups
    have a signal, tasks without one rest. staged: one level after another."""
    level: Optional[str] = None
    """The field of a task's record that is its level, such as source or hops. null: what the environment says."""
    weights: dict[str, float] = field(default_factory=dict)
    """mixed: the share of each level, {"2": 1, "3": 3}; levels that are not named are left out."""
    order: tuple[str, ...] = ()
    """staged: the levels in their order; those that are not named are left out. (): by the numbers in their names."""
    floor: float = 0.1
    """difficulty: a level is never drawn less than this share of what its size would give it."""
    max_rest: int = 8
    """difficulty: a task without signal rests for 1, 2, 4 ... epochs, at most this many. An epoch of rest is as many
    draws of its level as the level has tasks."""
    pass_at: float = 0.8
    """staged: the mean reward of a level's recent groups at which the next one is added."""
    pass_groups: int = 16
    """staged: and how many groups of it there must have been."""

    def __post_init__(self) -> None:
        require_bounds(self, "curriculum.", "above 0 and at most 1", "floor")
        require_bounds(self, "curriculum.", "at least 1", "max_rest", "pass_groups")
        mixed = self.name == "mixed"
        require(
            bool(self.weights) == mixed, "curriculum.weights", self.weights, "the levels' shares" if mixed else "none"
        )
        weighed = not mixed or (min(self.weights.values()) >= 0 and sum(self.weights.values()) > 0)
        require(weighed, "curriculum.weights", self.weights, "0 or more each, and above 0 together")
        require(not self.order or self.name == "staged", "curriculum.order", self.order, "none, without staged")


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of a recipe."""

    name: str
    kind: str
    """A name in `launch.stages.STAGES`: sft, rl, generate, judge, stepwise, dpo or eval."""
    steps: int
    """Optimizer steps. 0 in a stage that trains nothing, and as long as `epochs` is set."""
    config: RecipeConfig
    """The whole configuration, as it holds in this stage."""
    data: Optional[DataSource] = None
    """What to train on: the name of an earlier `generate` stage, the path of a JSON-lines file, or several."""
    epochs: Optional[float] = None
    """Set only over the data of an earlier stage: its size, and with it the number of steps, is not known yet."""


@dataclass(frozen=True, kw_only=True)
class RecipeConfig:
    """Everything but the list of stages. `env`, `reward` and `algorithm` hold the dataclass that their `name` picks."""

    name: str = "run"
    """Names the run's folder, runs/NAME, unless --run-dir does."""
    seed: int = 0
    """Seed of the sampling, of the order of tasks and of a model built from nothing. The tasks follow `env.seed`."""
    about: AboutConfig = field(default_factory=AboutConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    window: WindowConfig = field(default_factory=WindowConfig)
    env: Any = None
    reward: Any = None
    algorithm: Any = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    verdicts: VerdictsConfig = field(default_factory=VerdictsConfig)
    trajectories: TrajectoriesConfig = field(default_factory=TrajectoriesConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)

    def __post_init__(self) -> None:
        plain = bool(self.name) and all(letter.isalnum() or letter in "-_." for letter in self.name)
        fits = plain and not self.name.startswith(".")
        require(fits, "name", self.name, "letters, digits, - _ . : it names a folder")
        turn, window = self.rollout.max_turn_tokens, self.engine.max_model_len
        require(turn < window, "rollout.max_turn_tokens", turn, f"less than engine.max_model_len={window}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A recipe, as a run needs it."""

    recipe: RecipeConfig
    """What is given outside of `stages`. Model, engines and learner ranks are the same in all stages."""
    stages: tuple[StageConfig, ...]
    """In the order in which they run."""
