"""What the kinds of stage read of a recipe, in the groups that several of them share.

A section stands for all its keys. The keys of the whole run (`launch.config.scope.RUN_KEYS`) are no stage's own and
stand nowhere here.
"""

from __future__ import annotations

Keys = tuple[str, ...]

# How an episode is played, whichever stage or evaluation plays it.
EPISODE: Keys = (
    "env",
    "envs",
    "reward",
    "rollout.max_turn_tokens",
    "rollout.max_response_tokens",
    "rollout.episode_timeout_s",
    "rollout.infra_retries",
    "rollout.data_retries",
    "loop.max_failed_share",
)
# An evaluation before, after or instead of training.
EVALUATION: Keys = (
    *EPISODE,
    "rollout.top_p",
    "eval.tasks",
    "eval.greedy",
    "eval.samples",
    "eval.seeds",
    "eval.temperature",
    "eval.top_p",
    "eval.max_turn_tokens",
    "eval.max_response_tokens",
    "eval.sets",
    "eval.judge",
    "eval.by",
    "eval.seed",
    "eval.concurrency",
    "eval.paper",
    "checkpoint.best",
    "trajectories.logprobs",
    "trajectories.compress_mb",
)
# Every stage ends with a checkpoint of a learner, which holds the weights even where nothing is trained.
HELD: Keys = ("checkpoint.keep", "learner.zero_stage", "learner.offload")
# The learner says what it thinks of the tokens that a delivery is tried with.
DELIVERY: Keys = (*HELD, "learner.tokens_per_row", "learner.logit_chunk", "learner.compile")
# Optimizer steps.
STEPS: Keys = (
    *DELIVERY,
    "algorithm",
    "loop.groups_per_step",
    "checkpoint.every",
    "checkpoint.every_s",
    "learner.lr",
    "learner.schedule",
    "learner.warmup_steps",
    "learner.warmup_ratio",
    "learner.final_lr_ratio",
    "learner.betas",
    "learner.weight_decay",
    "learner.clip_grad",
    "learner.reduce_dtype",
    "learner.optimizer",
)
# Of a learner that looks at other weights than those that it trains.
REFERENCE: Keys = (
    "learner.reference",
    "learner.offload_reference",
    "learner.serve_reference",
    "learner.reference_gpus",
)
# Groups of episodes that the learner trains on while the next are played.
LOOP: Keys = (
    *EVALUATION,
    *STEPS,
    *REFERENCE,
    "rollout.temperature",
    "learner.critic_lr",
    "learner.behavior",
    "learner.rows_in_order",
    "loop.group_size",
    "loop.max_policy_lag",
    "loop.max_token_lag",
    "loop.oversample",
    "eval.every",
    "eval.deadline_s",
    "eval.budget_tokens",
    "eval.hold_weights",
    "trajectories.keep",
    "trajectories.keep_mb",
)
# The examples of `data`, with the held-out ones among them.
EXAMPLES: Keys = (*EVALUATION, *STEPS, "eval.every", "eval.share", "verdicts")
# The world's demonstrations, with those of its held-out tasks.
DEMONSTRATIONS: Keys = (*STEPS, "env", "envs", "eval.every", "eval.tasks")


def holds(keys: Keys, key: str) -> bool:
    """Whether a dotted key is among them, itself or in a section of theirs."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in keys)
