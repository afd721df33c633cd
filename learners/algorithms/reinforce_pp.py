"""REINFORCE++ (arXiv 2501.03262): PPO's clipped loss without a critic. A token's advantage is the discounted reward
from it on, KL penalty included, normalised over the whole batch instead of within a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learners.algorithms.base import Moments
from learners.algorithms.objective import add_terms, clipped
from learners.algorithms.policy_gradient import PolicyGradient, compare_with_group, raw_scores
from learners.algorithms.terms import Clip, PolicyGradientConfig, TokenCredit

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class ReinforcePPConfig(TokenCredit, Clip, PolicyGradientConfig):
    name: str = "reinforce_pp"
    group_baseline: bool = False
    """Whether the group's mean is subtracted from each reward first (REINFORCE++-baseline). For groups of at least
    2."""


class ReinforcePP(PolicyGradient):
    reads_streams = credits_tokens = True

    def __init__(self, config: ReinforcePPConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The rewards as they are, or less their group's mean: then None where all are equal."""
        if not self.config.group_baseline:
            return raw_scores(rewards)
        return compare_with_group(rewards, normalize_std=False)

    def credit(self, rows: Sequence[MicroBatch], moments: Moments) -> list[MicroBatch]:
        from learners.algorithms.credit import as_values, estimate, normalize, token_rewards  # torch behind it

        config = self.config
        credited = []
        for row in rows:
            rewards_MT = token_rewards(
                as_values(row) if config.group_baseline else row, config, bound=config.reward_clip
            )
            credited.append(estimate(row, rewards_MT, discount=config.discount, lam=1.0))
        return normalize(credited, moments)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """PPO's clipped objective, with its entropy term, and a KL term where the reward has none."""
        config = self.config
        policy = clipped(config, logp_T, row, denominator, low=config.clip_low, high=config.clip_high)
        return add_terms(config, policy, logp_T, entropy_T, row, denominator)
