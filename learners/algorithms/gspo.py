"""Group sequence policy optimisation (arXiv 2507.18071): GRPO with one ratio per sequence, the geometric mean of its
tokens' ratios. That ratio stays close to 1, so the clips are narrow. Every sequence counts the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learners.algorithms.terms import ClippedTerms, Clips, Configured, relative_to_group
from rlsys.reductions import Reduction


@dataclass(frozen=True, kw_only=True)
class GSPOConfig(ClippedTerms):
    name: str = "gspo"
    reduction: Reduction = "sequence_mean"
    clip_low: float = 3e-4
    """Lower clip range of a sequence's ratio, as a distance from 1. It is narrow because these ratios stay close to
    1."""
    clip_high: float = 4e-4
    """Upper clip range of a sequence's ratio, as a distance from 1."""

    @property
    def clips(self) -> Clips:
        return Clips(self.clip_low, self.clip_high, level="geometric")


class GSPO(Configured):
    def __init__(self, config: GSPOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The group's z-scores, as in GRPO."""
        return relative_to_group(rewards)
