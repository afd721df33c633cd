"""Group relative policy optimisation (arXiv 2402.03300), with DAPO's token mean and upper clip (arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from learners.algorithms.terms import ClippedTerms, Clips, Configured, relative_to_group
from rlsys.config.learner import Level


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(ClippedTerms):
    name: str = "grpo"
    clip_high: float = 0.28
    """Upper clip range of the ratio, as a distance from 1. A token is not pushed up further once its probability is
    this share above the behaviour policy's. Wider than clip_low (DAPO), because a narrow bound would keep rare tokens
    rare."""
    normalize_std: bool = True
    """Whether advantages are divided by the standard deviation of their group's rewards. false is Dr. GRPO, in which a
    group with a larger spread of rewards has more weight."""
    dual_clip: Optional[float] = None
    """Bound on the loss of a token with a negative advantage, as a multiple of |advantage|; 3 is usual. null: none."""
    ratio_level: Level = "token"
    """Level of the ratio that is clipped: of the token, of its whole sequence as ReSearch prints it (equation 1), or
    the sequence's geometric mean per token."""

    @property
    def clips(self) -> Clips:
        return Clips(self.clip_low, self.clip_high, self.dual_clip, self.ratio_level)


class GRPO(Configured):
    def __init__(self, config: GRPOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The group's z-scores; None when all scored rewards are equal or fewer than two were scored."""
        return relative_to_group(rewards, normalize_std=self.config.normalize_std)
