"""Proximal policy optimisation with a critic (arXiv 1707.06347), and Long CoT's discount for each reward stream
(arXiv 2502.03373)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from learners.algorithms.base import VALUES, Moments
from learners.algorithms.objective import add_terms, clipped
from learners.algorithms.policy_gradient import PolicyGradient, raw_scores
from learners.algorithms.terms import Clip, PolicyGradientConfig, TokenCredit, check_dual_clip
from rlsys.errors import require, require_bounds

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class PPOConfig(TokenCredit, Clip, PolicyGradientConfig):
    name: str = "ppo"
    dual_clip: Optional[float] = None
    """Bound on the loss of a token with a negative advantage, as a multiple of |advantage|; 3 is usual. null: none."""
    value_clip: Optional[float] = 0.2
    """Clip range of the critic's value of a token in one update, in units of the value; beyond it the gradient stops.
    null: no bound."""
    lam: float = 1.0
    """Lambda of generalised advantage estimation. Below 1 it relies more on the critic: less variance, more bias. A
    reward with token rewards requires 1."""
    normalize_advantages: bool = True
    """Whether advantages are shifted and scaled to mean 0 and standard deviation 1 over all sampled tokens of the
    batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dual_clip(self.dual_clip)
        require(0 <= self.lam <= 1, "algorithm.lam", self.lam, "from 0 to 1")
        require_bounds(self, "algorithm.", "null, or above 0", "value_clip")


class PPO(PolicyGradient):
    reads_streams = credits_tokens = True
    needs = frozenset({VALUES})

    def __init__(self, config: PPOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The rewards as they are: the critic is the baseline."""
        return raw_scores(rewards)

    def credit(self, rows: Sequence[MicroBatch], moments: Moments) -> list[MicroBatch]:
        """Raises BadInput for `lam` below 1 with several reward streams: they are known with the first rewards."""
        from learners.algorithms.credit import estimate, normalize, token_rewards  # torch behind it

        config = self.config
        streamed = any(len(row.discounts) > 1 for row in rows)
        require(config.lam == 1 or not streamed, "algorithm.lam", config.lam, "1 for a reward with token streams")
        credited = [
            estimate(
                row, token_rewards(row, config, bound=config.reward_clip), discount=config.discount, lam=config.lam
            )
            for row in rows
        ]
        return normalize(credited, moments) if config.normalize_advantages else credited

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """The clipped objective, with its entropy term, and a KL term where the reward has none."""
        config = self.config
        policy = clipped(
            config, logp_T, row, denominator, low=config.clip_low, high=config.clip_high, dual=config.dual_clip
        )
        return add_terms(config, policy, logp_T, entropy_T, row, denominator)

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
