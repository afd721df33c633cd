"""Group sequence policy optimisation (arXiv 2507.18071): GRPO with one ratio per sequence, the geometric mean of its
tokens' ratios. That ratio stays close to 1, so the clips are narrow. Every sequence counts the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learners.algorithms.terms import Configured, Terms, check_clips, clipped_loss, relative_to_group
from rlsys.reductions import Reduction

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class GSPOConfig(Terms):
    name: str = "gspo"
    reduction: Reduction = "sequence_mean"
    clip_low: float = 3e-4
    """Lower clip range of a sequence's ratio, as a distance from 1. It is narrow because these ratios stay close to
    1."""
    clip_high: float = 4e-4
    """Upper clip range of a sequence's ratio, as a distance from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clips(self.clip_low, self.clip_high)


class GSPO(Configured):
    def __init__(self, config: GSPOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The group's z-scores, as in GRPO."""
        return relative_to_group(rewards)

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
            level="geometric",
        )
