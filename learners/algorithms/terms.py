"""The keys that policy-gradient algorithms share, in groups: an algorithm's config inherits those that its loss reads,
as `GRPOConfig(Clip, KLTerm, PolicyGradientConfig)` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.config.learner import Correction, KLKind, Level
from rlsys.errors import require, require_bounds
from rlsys.reductions import Reduction
from rlsys.summaries import Truncated


@dataclass(frozen=True, kw_only=True)
class PolicyGradientConfig:
    """What all of them have, whatever their advantages are of."""

    name: str = ""
    reduction: Reduction = "token_mean"
    """Reduction of token losses to one number; `rlsys.reductions` has the formula of each name."""
    epochs: int = 1
    """Number of passes over each batch. More than 1 reuses samples, which are then ever more off-policy."""
    minibatches: int = 1
    """Number of minibatches that a batch is divided into, each an optimizer step: a count, not a size."""
    truncated: Truncated = "train"
    """Treatment of an episode that a token limit cut off. train: it is trained like any other. mask: its tokens are
    left out of the loss (over-long filtering, arXiv 2503.14476), and its reward counts in the baseline of its group.
    leave_out: its reward does not count in the baseline either."""
    entropy_coef: float = 0.0
    """Coefficient of the entropy bonus. A value above 0 counters a collapse to few answers."""
    is_correction: Correction = "none"
    """Importance sampling correction for tokens sampled by older weights or with the engine's rounding. none: only the
    clipped ratio corrects. decoupled: each token's loss is multiplied by its ratio. tis: that ratio is truncated at
    is_cap. mis: tokens with a ratio below is_floor or above is_cap are masked out."""
    is_level: Level = "token"
    """Level of the ratio of the correction: of the token, of its whole sequence, or the sequence's geometric mean per
    token."""
    is_cap: float = 2.0
    """Largest importance ratio, for tis and mis."""
    is_floor: float = 0.0
    """Smallest importance ratio, for mis."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class KLTerm:
    """The distance from the reference model as a term of the loss."""

    kl_coef: float = 0.0
    """Coefficient of the KL divergence from the reference model. 0: no reference model is loaded."""
    kl_kind: KLKind = "k3"
    """Estimator of the KL divergence per token: `rlsys.losses.kl_estimate` has the formulas."""
    kl_clamp: Optional[float] = 10.0
    """Largest KL estimate of one token, in nats, so that a single token cannot dominate the loss. null: no bound."""

    @property
    def kl_in_loss(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Clip:
    """The range of PPO's clipped objective."""

    clip_low: float = 0.2
    """Lower clip range of the ratio, as a distance from 1. A token is not pushed down further once its probability is
    this share below the behaviour policy's."""
    clip_high: float = 0.2
    """Upper clip range of the ratio, as a distance from 1. A token is not pushed up further once its probability is
    this share above the behaviour policy's."""


@dataclass(frozen=True, kw_only=True)
class TokenCredit(KLTerm):
    """The credit of each token, which the learner finds (`learners.algorithms.credit`), with the KL penalty in it."""

    discount: float = 1.0
    """Discount (gamma) of the trajectory's reward per sampled token. Token rewards, such as Long CoT's, have their
    own."""
    reward_clip: Optional[float] = None
    """Largest absolute value of a trajectory's reward, after the group baseline if there is one; larger ones are
    clipped. Long CoT: 10. null: no bound."""
    kl_in: Literal["reward", "loss"] = "reward"
    """Place of the KL penalty. reward: it is subtracted from the reward of each token. loss: it is a term of the
    loss."""
    kl_kind: KLKind = "k1"
    """Estimator of the KL divergence per token. In the loss it must be k2 or k3."""

    @property
    def kl_in_loss(self) -> bool:
        return self.kl_in == "loss"


def check(config: PolicyGradientConfig) -> None:
    """The bounds of every group that a config has. Raises BadInput with the key."""
    require_bounds(config, "algorithm.", "at least 1", "epochs", "minibatches")
    require_bounds(config, "algorithm.", "at least 0", "entropy_coef")
    require_bounds(config, "algorithm.", "above 0", "is_cap")
    require(0 <= config.is_floor < config.is_cap, "algorithm.is_floor", config.is_floor, "at least 0 and below is_cap")
    if isinstance(config, KLTerm):
        require_bounds(config, "algorithm.", "at least 0", "kl_coef")
        useless = config.kl_coef > 0 and config.kl_in_loss and config.kl_kind == "k1"
        require(not useless, "algorithm.kl_kind", config.kl_kind, "k2 or k3 in the loss: k1's mean gradient is zero")
        require_bounds(config, "algorithm.", "null, or above 0", "kl_clamp")
    if isinstance(config, Clip):
        require(0 < config.clip_low < 1, "algorithm.clip_low", config.clip_low, "above 0 and below 1")
        require(config.clip_high > 0, "algorithm.clip_high", config.clip_high, "above 0")
    if isinstance(config, TokenCredit):
        require(0 <= config.discount <= 1, "algorithm.discount", config.discount, "from 0 to 1")
        require_bounds(config, "algorithm.", "null, or above 0", "reward_clip")


def check_dual_clip(dual: float | None) -> None:
    """Of the algorithms that have one. Raises BadInput."""
    require(dual is None or dual > 1, "algorithm.dual_clip", dual, "null, or above 1")


def kl_of(config: PolicyGradientConfig) -> KLTerm | None:
    """The config with a KL term; None where there is none."""
    return config if isinstance(config, KLTerm) and config.kl_coef > 0 else None
