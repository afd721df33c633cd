"""Group sequence policy optimisation (arXiv 2507.18071): GRPO with one ratio per sequence, the geometric mean of its
tokens' ratios. That ratio stays close to 1, so the clips are narrow. Every sequence counts the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learners.algorithms.objective import add_terms, clipped
from learners.algorithms.policy_gradient import PolicyGradient, compare_with_group
from learners.algorithms.terms import Clip, KLTerm, PolicyGradientConfig
from rlsys.reductions import Reduction

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class GSPOConfig(Clip, KLTerm, PolicyGradientConfig):
    name: str = "gspo"
    reduction: Reduction = "sequence_mean"
    clip_low: float = 3e-4
    """Lower clip range of a sequence's ratio, as a distance from 1. It is narrow because these ratios stay close to
    1."""
    clip_high: float = 4e-4
    """Upper clip range of a sequence's ratio, as a distance from 1."""


class GSPO(PolicyGradient):
    def __init__(self, config: GSPOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The group's z-scores, as in GRPO."""
        return compare_with_group(rewards)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """The clipped objective on the ratio of the whole sequence, with its KL and entropy terms."""
        config = self.config
        policy = clipped(
            config, logp_T, row, denominator, low=config.clip_low, high=config.clip_high, level="geometric"
        )
        return add_terms(config, policy, logp_T, entropy_T, row, denominator)
