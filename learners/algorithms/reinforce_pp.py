"""REINFORCE++ (arXiv 2501.03262): PPO's clipped loss without a critic. A token's advantage is the discounted reward
from it on, KL penalty included, normalised over the whole batch instead of within a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional

from learners.algorithms.base import Moments
from learners.algorithms.terms import Configured, Terms, check_clips, clipped_loss, scored, with_signal
from rlsys.config.formulas import KLKind
from rlsys.errors import require, require_bounds

if TYPE_CHECKING:
    import torch

    from rlsys.batch import Row
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class ReinforcePPConfig(Terms):
    name: str = "reinforce_pp"
    clip_low: float = 0.2
    """A token is not pushed down further once its probability is this share below what it was when sampled."""
    clip_high: float = 0.2
    """A token is not pushed up further once its probability is this share above what it was when sampled."""
    group_baseline: bool = False
    """Subtract the group's mean from each reward first (REINFORCE++-baseline). For groups of at least 2."""
    discount: float = 1.0
    """Discount of the trajectory's reward per sampled token. Rewards per token, as Long CoT has, bring their own."""
    reward_clip: Optional[float] = None
    """A trajectory's reward, less the group's mean where that is taken, is cut to between minus and plus this. null
    leaves it as it is."""
    kl_in: Literal["reward", "loss"] = "reward"
    """Where the KL penalty goes. reward: it lowers the reward of each token. loss: it is a term beside the policy's."""
    kl_kind: KLKind = "k1"
    """Estimate of the KL divergence, per token. In the loss it has to be k2 or k3."""

    @property
    def kl_in_loss(self) -> bool:
        return self.kl_in == "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clips(self.clip_low, self.clip_high)
        require(0 <= self.discount <= 1, "algorithm.discount", self.discount, "from 0 to 1")
        require_bounds(self, "algorithm.", "null, or above 0", "reward_clip")


class ReinforcePP(Configured):
    reads_streams = True

    def __init__(self, config: ReinforcePPConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The rewards as they are, or less their group's mean: then None where all are equal."""
        if not self.config.group_baseline:
            return scored(rewards)
        import torch

        from rlsys.advantages import group_advantages

        return with_signal(group_advantages(torch.tensor(rewards, dtype=torch.float64), normalize_std=False))

    def credit(self, rows: Sequence[Row], moments: Moments) -> list[Row]:
        from learners.algorithms.credit import as_values, estimate, normalize, token_rewards

        config = self.config
        credited = []
        for row in rows:
            rewards_MT = token_rewards(
                as_values(row) if config.group_baseline else row,
                kl_coef=0.0 if config.kl_in_loss else config.kl_coef,
                kl_kind=config.kl_kind,
                kl_clamp=config.kl_clamp,
                reward_clip=config.reward_clip,
            )
            credited.append(estimate(row, rewards_MT, discount=config.discount, lam=1.0))
        return normalize(credited, moments)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: Row, *, denominator: float) -> LossOutput:
        config = self.config
        return clipped_loss(
            config,
            logp_T,
            entropy_T,
            row,
            denominator=denominator,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
