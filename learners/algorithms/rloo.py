"""REINFORCE leave-one-out (arXiv 2402.14740): the baseline of each sibling is the mean reward of the others.

The whole response is one action: its log-probability is the sum over its tokens. On-policy as published; here tokens
that other weights sampled are weighed by their truncated ratio (`is_correction: tis`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learners.algorithms.objective import add_terms, reinforce
from learners.algorithms.policy_gradient import PolicyGradient, compare_with_others
from learners.algorithms.terms import KLTerm, PolicyGradientConfig
from rlsys.config.learner import Correction
from rlsys.reductions import Reduction

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class RLOOConfig(KLTerm, PolicyGradientConfig):
    name: str = "rloo"
    reduction: Reduction = "sequence_sum"
    is_correction: Correction = "tis"


class RLOO(PolicyGradient):
    clipped = False

    def __init__(self, config: RLOOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """Reward minus the mean of the other siblings; None where nothing can be compared."""
        return compare_with_others(rewards)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """REINFORCE on the whole response, with its KL and entropy terms."""
        policy = reinforce(self.config, logp_T, row, denominator)
        return add_terms(self.config, policy, logp_T, entropy_T, row, denominator)
