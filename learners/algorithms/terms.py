"""What the policy-gradient algorithms share: the reduction, the steps per batch, the KL and entropy terms, and the
correction for tokens that other weights sampled. An algorithm adds its advantages, and its own loss if it has one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional

from learners.algorithms.base import PROXIMAL, REFERENCE, Algorithm
from rlsys.config.learner import Correction, KLKind, Level
from rlsys.errors import require, require_bounds
from rlsys.reductions import Reduction
from rlsys.summaries import Truncated

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


class Clips(NamedTuple):
    """Where the clipped objective stops to follow the ratio, as distances from 1."""

    low: float
    high: float
    dual: float | None = None  # of the loss of a negative advantage, as a multiple of it
    level: Level = "token"  # of the ratio


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What all policy-gradient algorithms have, whatever their advantages are of."""

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

    @property
    def clips(self) -> Clips | None:
        """Of the clipped objective; None for REINFORCE, which has no ratio to clip."""
        return None

    def __post_init__(self) -> None:
        require_bounds(self, "algorithm.", "at least 1", "epochs", "minibatches")
        require_bounds(self, "algorithm.", "at least 0", "entropy_coef")
        require_bounds(self, "algorithm.", "above 0", "is_cap")
        require(0 <= self.is_floor < self.is_cap, "algorithm.is_floor", self.is_floor, "at least 0 and below is_cap")


@dataclass(frozen=True, kw_only=True)
class Terms(Shared):
    """The terms that the losses of all algorithms with rewards share."""

    kl_coef: float = 0.0
    """Coefficient of the KL divergence from the reference model. 0: no reference model is loaded."""
    kl_kind: KLKind = "k3"
    """Estimator of the KL divergence per token: `rlsys.losses.kl_estimate` has the formulas."""
    kl_clamp: Optional[float] = 10.0
    """Largest KL estimate of one token, in nats, so that a single token cannot dominate the loss. null: no bound."""

    @property
    def kl_in_loss(self) -> bool:
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "algorithm.", "at least 0", "kl_coef")
        useless = self.kl_coef > 0 and self.kl_in_loss and self.kl_kind == "k1"
        require(not useless, "algorithm.kl_kind", self.kl_kind, "k2 or k3 in the loss: k1's mean gradient is zero")
        require_bounds(self, "algorithm.", "null, or above 0", "kl_clamp")


@dataclass(frozen=True, kw_only=True)
class ClippedTerms(Terms):
    """Those of PPO's clipped objective."""

    clip_low: float = 0.2
    """Lower clip range of the ratio, as a distance from 1. A token is not pushed down further once its probability is
    this share below the behaviour policy's."""
    clip_high: float = 0.2
    """Upper clip range of the ratio, as a distance from 1. A token is not pushed up further once its probability is
    this share above the behaviour policy's."""

    @property
    def clips(self) -> Clips:
        return Clips(self.clip_low, self.clip_high)

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high, dual, _ = self.clips
        require(0 < low < 1, "algorithm.clip_low", low, "above 0 and below 1")
        require(high > 0, "algorithm.clip_high", high, "above 0")
        require(dual is None or dual > 1, "algorithm.dual_clip", dual, "null, or above 1")


@dataclass(frozen=True, kw_only=True)
class CreditTerms(ClippedTerms):
    """Those of algorithms that find the credit of each token on the learner (`learners.algorithms.credit`)."""

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

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.discount <= 1, "algorithm.discount", self.discount, "from 0 to 1")
        require_bounds(self, "algorithm.", "null, or above 0", "reward_clip")


def with_signal(credit: list[float]) -> list[float] | None:
    """The advantages of a group, `nan` for failed siblings; None where all others are 0: there is nothing to learn."""
    return credit if any(advantage != 0 for advantage in credit if not math.isnan(advantage)) else None


def relative_to_group(rewards: Sequence[float], *, normalize_std: bool = True) -> list[float] | None:
    """Rewards less the mean of their group, or its z-scores; None without a signal."""
    import torch

    from rlsys.advantages import group_advantages  # torch behind it

    return with_signal(
        group_advantages(torch.tensor(rewards, dtype=torch.float64), normalize_std=normalize_std).tolist()
    )


def relative_to_others(rewards: Sequence[float]) -> list[float] | None:
    """Each reward less the mean of the other siblings'; None without a signal."""
    import torch

    from rlsys.advantages import leave_one_out  # torch behind it

    return with_signal(leave_one_out(torch.tensor(rewards, dtype=torch.float64)).tolist())


def raw_scores(rewards: Sequence[float]) -> list[float] | None:
    """The rewards themselves, for algorithms that find advantages on the learner. None when all siblings failed."""
    return None if all(math.isnan(reward) for reward in rewards) else list(rewards)


def kl_of(terms: Shared) -> Terms | None:
    """The terms with a KL term; None where there is none."""
    return terms if isinstance(terms, Terms) and terms.kl_coef > 0 else None


class Configured(Algorithm):
    """The part of an algorithm that follows from its `Shared` terms alone."""

    def __init__(self, terms: Shared, *, clipped: bool = True) -> None:
        """clipped: the loss compares the policy with the one before the update, as PPO does and REINFORCE does not."""
        self.terms = terms
        self._clipped = clipped

    @property
    def reduction(self) -> Reduction:
        return self.terms.reduction

    @property
    def truncated(self) -> Truncated:
        return self.terms.truncated

    @property
    def needs(self) -> frozenset[str]:
        """The proximal policy only where several steps follow: in the first it is the policy that is being trained."""
        several = self.terms.epochs * self.terms.minibatches > 1
        proximal = self._clipped and several and self.terms.is_correction != "none"
        return frozenset([REFERENCE] * (kl_of(self.terms) is not None) + [PROXIMAL] * proximal)

    @property
    def epochs(self) -> int:
        return self.terms.epochs

    @property
    def minibatches(self) -> int:
        return self.terms.minibatches

    @property
    def entropy_coef(self) -> float:
        return self.terms.entropy_coef

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        if self.terms.clips is None:
            return gradient_loss(self.terms, logp_T, entropy_T, row, denominator=denominator)
        return clipped_loss(self.terms, self.terms.clips, logp_T, entropy_T, row, denominator=denominator)


def clipped_loss(
    terms: Shared, clips: Clips, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float
) -> LossOutput:
    """The clipped objective with its terms. With a correction this is decoupled PPO: the ratio is to the proximal
    policy, and a weight leads from the behaviour policy to that."""
    from rlsys.losses import clipped_policy_loss  # torch behind it

    old_T, weights_T = row.behavior_logprobs, row.weights
    measured: dict[str, torch.Tensor] = {}
    if terms.is_correction != "none":
        old_T = logp_T.detach() if row.proximal_logprobs is None else row.proximal_logprobs
        weights_T, measured = _correct(terms, old_T, row)
    policy = clipped_policy_loss(
        logp_T,
        old_T,
        row.advantages,
        row.loss_mask,
        clip_low=clips.low,
        clip_high=clips.high,
        denominator=denominator,
        dual_clip=clips.dual,
        weights=weights_T,
        level=clips.level,
        cu_seqlens=row.cu_seqlens,
    )
    return _with_terms(terms, policy, measured, logp_T, entropy_T, row, denominator)


def gradient_loss(
    terms: Shared, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float
) -> LossOutput:
    """REINFORCE with its terms. There is no ratio: a correction weighs by the policy of this step, not the first."""
    from rlsys.losses import policy_gradient_loss  # torch behind it

    weights_T = row.weights
    measured: dict[str, torch.Tensor] = {}
    if terms.is_correction != "none":
        weights_T, measured = _correct(terms, logp_T.detach(), row)
    policy = policy_gradient_loss(logp_T, row.advantages, row.loss_mask, denominator=denominator, weights=weights_T)
    return _with_terms(terms, policy, measured, logp_T, entropy_T, row, denominator)


def _correct(terms: Shared, proximal_T: torch.Tensor, row: MicroBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    from rlsys.off_policy import importance_weights  # torch behind it

    correction_T, stopped_T = importance_weights(
        proximal_T,
        row.behavior_logprobs,
        row.loss_mask,
        kind=terms.is_correction,
        cap=terms.is_cap,
        floor=terms.is_floor,
        level=terms.is_level,
        cu_seqlens=row.cu_seqlens,
    )
    return row.weights * correction_T, {"correction/weight": correction_T, "correction/stopped": stopped_T}


def _with_terms(
    terms: Shared,
    policy: LossOutput,
    measured: Mapping[str, torch.Tensor],
    logp_T: torch.Tensor,
    entropy_T: torch.Tensor,
    row: MicroBatch,
    denominator: float,
) -> LossOutput:
    from rlsys.batch import masked_means  # torch behind these two
    from rlsys.losses import LossOutput, behavior_kl, combine_losses, entropy_bonus, kl_loss

    keep = row.loss_mask.bool()
    behavior_T = behavior_kl(logp_T, row.behavior_logprobs, keep)  # the policy's loss may have seen the proximal one
    means = masked_means(keep, {"entropy/mean": entropy_T, "kl/behavior": behavior_T, **measured})
    parts = [LossOutput(loss=policy.loss, metrics={**policy.metrics, **means})]
    compared = kl_of(terms)
    if compared is not None and compared.kl_in_loss:
        if row.reference_logprobs is None:
            raise ValueError(
                "a row without reference_logprobs: expected the reference model's pass, for algorithm.kl_coef"
            )
        parts.append(
            kl_loss(
                logp_T,
                row.reference_logprobs,
                keep,
                kind=compared.kl_kind,
                coef=compared.kl_coef,
                denominator=denominator,
                clamp=compared.kl_clamp,
                weights=row.weights,
            )
        )
    if terms.entropy_coef > 0:
        parts.append(
            entropy_bonus(entropy_T, keep, coef=terms.entropy_coef, denominator=denominator, weights=row.weights)
        )
    return combine_losses(*parts)
