"""Proximal policy optimisation with a critic (arXiv 1707.06347), and Long CoT's discount for each reward stream
(arXiv 2502.03373)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional

from learners.algorithms.base import VALUES, Moments
from learners.algorithms.terms import Configured, Terms, check_clips, clipped_loss, scored
from rlsys.config.learner import KLKind
from rlsys.errors import require, require_bounds

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Terms):
    name: str = "ppo"
    clip_low: float = 0.2
    """Lower clip range of the ratio, as a distance from 1. A token is not pushed down further once its probability is
    this share below the behaviour policy's."""
    clip_high: float = 0.2
    """Upper clip range of the ratio, as a distance from 1. A token is not pushed up further once its probability is
    this share above the behaviour policy's."""
    dual_clip: Optional[float] = None
    """Bound on the loss of a token with a negative advantage, as a multiple of |advantage|; 3 is usual. null: none."""
    value_clip: Optional[float] = 0.2
    """Clip range of the critic's value of a token in one update, in units of the value; beyond it the gradient stops.
    null: no bound."""
    discount: float = 1.0
    """Discount (gamma) of the trajectory's reward per sampled token. Token rewards, such as Long CoT's, have their
    own."""
    lam: float = 1.0
    """Lambda of generalised advantage estimation. Below 1 it relies more on the critic: less variance, more bias. A
    reward with token rewards requires 1."""
    normalize_advantages: bool = True
    """Whether advantages are shifted and scaled to mean 0 and standard deviation 1 over all sampled tokens of the
    batch."""
    reward_clip: Optional[float] = None
    """Largest absolute value of a trajectory's reward; larger ones are clipped. Long CoT: 10. null: no bound."""
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
        check_clips(self.clip_low, self.clip_high, self.dual_clip)
        for key in ("discount", "lam"):
            require(0 <= getattr(self, key) <= 1, f"algorithm.{key}", getattr(self, key), "from 0 to 1")
        require_bounds(self, "algorithm.", "null, or above 0", "value_clip", "reward_clip")


class PPO(Configured):
    reads_streams = True

    def __init__(self, config: PPOConfig) -> None:
        super().__init__(config)
        self.config = config

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {VALUES}

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The rewards as they are: the critic is the baseline."""
        return scored(rewards)

    def credit(self, rows: Sequence[MicroBatch], moments: Moments) -> list[MicroBatch]:
        """Raises BadInput for `lam` below 1 with several reward streams: they are known with the first rewards."""
        from learners.algorithms.credit import estimate, normalize, token_rewards  # torch behind it

        config = self.config
        streamed = any(len(row.discounts) > 1 for row in rows)
        require(config.lam == 1 or not streamed, "algorithm.lam", config.lam, "1 for a reward with token streams")
        credited = []
        for row in rows:
            rewards_MT = token_rewards(
                row,
                kl_coef=0.0 if config.kl_in_loss else config.kl_coef,
                kl_kind=config.kl_kind,
                kl_clamp=config.kl_clamp,
                reward_clip=config.reward_clip,
            )
            credited.append(estimate(row, rewards_MT, discount=config.discount, lam=config.lam))
        return normalize(credited, moments) if config.normalize_advantages else credited

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        config = self.config
        return clipped_loss(
            config,
            logp_T,
            entropy_T,
            row,
            denominator=denominator,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            dual_clip=config.dual_clip,
        )

    def value_loss(self, values_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        from rlsys.losses import value_loss  # torch behind it

        if row.values is None or row.returns is None:
            raise ValueError(
                "a row without values and returns: expected the critic's pass and `credit` before the loss"
            )
        return value_loss(
            values_T,
            row.values,
            row.returns,
            row.loss_mask,
            clip_range=self.config.value_clip,
            denominator=denominator,
            weights=row.weights,
        )
