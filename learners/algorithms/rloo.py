"""REINFORCE leave-one-out (arXiv 2402.14740): the baseline of each sibling is the mean reward of the others.

The whole response is one action: its log-probability is the sum over its tokens. On-policy as published; here tokens
that other weights sampled are weighed by their truncated ratio (`is_correction: tis`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learners.algorithms.terms import Configured, Terms, relative_to_others
from rlsys.config.learner import Correction
from rlsys.reductions import Reduction


@dataclass(frozen=True, kw_only=True)
class RLOOConfig(Terms):
    name: str = "rloo"
    reduction: Reduction = "sequence_sum"
    is_correction: Correction = "tis"


class RLOO(Configured):
    def __init__(self, config: RLOOConfig) -> None:
        super().__init__(config, clipped=False)

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """Reward minus the mean of the other siblings; None where nothing can be compared."""
        return relative_to_others(rewards)
