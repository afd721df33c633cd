"""The asynchronous loop of an rl stage: group sizes, staleness, weight deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """The asynchronous loop of an `rl` stage: batch size, staleness limits and delivery of weights."""

    groups_per_step: int = 32
    """Batch size of a training step, in tasks: groups in rl, demonstrations in sft, pairs in dpo."""
    group_size: int = 8
    """Number of trajectories per task. Group baselines need at least 2."""
    max_policy_lag: int = 1
    """Largest staleness of a trajectory, in versions of the weights: how far its oldest token may be behind the version
    that is being trained. A larger lag keeps the engines busier; 0 is synchronous, on-policy RL."""
    max_token_lag: Optional[int] = None
    """Largest staleness of a token in the loss, in versions of the weights. Older tokens are masked out of the loss and
    stay in the context. null: every sampled token is trained on. It has an effect only below `max_policy_lag`."""
    mismatch_limit: Optional[float] = None
    """Largest mean log-prob gap between engine and learner on the same tokens after a delivery of weights, in nats per
    token. Above it the engine gets the weights once more; if that does not help, the run stops with the reason. null:
    twice what the learner's own numbers move by when it rounds every result once more, measured at each delivery, and
    at least 0.003."""
    running_kv: Optional[Literal["keep", "recompute"]] = None
    """Treatment of the KV cache of requests in flight when new weights arrive. keep: generation continues at once, and
    later tokens are sampled by new weights over a cache of old ones, as `mismatch/mixed_versions` shows. recompute:
    every request in flight is prefilled again, which is exact, and slow with long contexts. null: keep on GPUs,
    recompute on a CPU."""
    publish_deadline_s: float = 60.0
    """Time limit of the delivery of new weights to every engine, in seconds. For large models it grows to three times
    what their size takes at the rate of the last delivery, 100 MB/s before there is one. An engine that is late starts
    no group until it holds the newest weights; the others continue. It also limits how long one node may take to send
    one bucket (64 MB or one tensor) to another."""
    oversample: float = 1.0
    """Factor of dynamic sampling: groups without signal (all rewards equal) are replaced by others, up to this many
    times `groups_per_step` groups in one step. 3 plays at most three times as many groups. 1: no replacement. More than
    1 needs an algorithm with a group baseline."""
    max_failed_share: float = 0.5
    """Largest share of failed trajectories in one step. Above it the run stops with the reason. An evaluation with a
    larger share of failures reports no number."""

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
        """Groups that a step may take in addition to `groups_per_step`."""
        return int(self.groups_per_step * (self.oversample - 1))

    @property
    def slots(self) -> int:
        """Groups that may be unfinished or untrained at once: the staleness bound, kept by admission."""
        return self.groups_per_step * (1 + self.max_policy_lag)
