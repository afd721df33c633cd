"""Group relative policy optimisation (arXiv 2402.03300), with DAPO's token mean and upper clip (arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from learners.algorithms.objective import add_terms, clipped
from learners.algorithms.policy_gradient import PolicyGradient, compare_with_group
from learners.algorithms.terms import Clip, KLTerm, PolicyGradientConfig, check_dual_clip
from rlsys.config.learner import Level

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(Clip, KLTerm, PolicyGradientConfig):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dual_clip(self.dual_clip)


class GRPO(PolicyGradient):
    def __init__(self, config: GRPOConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The group's z-scores; None when all scored rewards are equal or fewer than two were scored."""
        return compare_with_group(rewards, normalize_std=self.config.normalize_std)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """The clipped objective, with its KL and entropy terms."""
        config = self.config
        policy = clipped(
            config,
            logp_T,
            row,
            denominator,
            low=config.clip_low,
            high=config.clip_high,
            dual=config.dual_clip,
            level=config.ratio_level,
        )
        return add_terms(config, policy, logp_T, entropy_T, row, denominator)
