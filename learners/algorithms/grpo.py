"""Group relative policy optimisation (arXiv 2402.03300), with DAPO's token mean and upper clip (arXiv 2503.14476)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import torch

from rlsys.advantages import group_advantages
from rlsys.config import require
from rlsys.losses import LossOutput, clipped_policy_loss, masked_means
from rlsys.types import Row


@dataclass(frozen=True, kw_only=True)
class GRPOConfig:
    name: str = "grpo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    """Above clip_low: a rare token is stopped by the upper side only, so widening it lets exploration survive."""
    normalize_std: bool = True
    """Divide by the group's standard deviation; false makes hard and easy tasks count by their spread."""
    dual_clip: Optional[float] = None
    """Bound on the loss of a token with a negative advantage whose ratio ran away, as a multiple of |advantage|."""

    def __post_init__(self) -> None:
        require(0 < self.clip_low < 1, "algorithm.clip_low", self.clip_low, "above 0 and below 1")
        require(self.clip_high > 0, "algorithm.clip_high", self.clip_high, "above 0")
        require(self.dual_clip is None or self.dual_clip > 1, "algorithm.dual_clip", self.dual_clip, "null, or above 1")


class GRPO:
    def __init__(self, config: GRPOConfig) -> None:
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """The group's z-scores; None when all scored rewards are equal or fewer than two were scored."""
        credit = group_advantages(
            torch.tensor(rewards, dtype=torch.float64), normalize_std=self.config.normalize_std
        ).tolist()
        has_signal = any(advantage != 0 for advantage in credit if not math.isnan(advantage))
        return credit if has_signal else None

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: Row, *, denominator: float) -> LossOutput:
        config = self.config
        policy = clipped_policy_loss(
            logp_T,
            row.behavior_logprobs,
            row.advantages,
            row.loss_mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            denominator=denominator,
            dual_clip=config.dual_clip,
        )
        measured = masked_means(row.loss_mask.bool(), {"entropy/mean": entropy_T})
        return LossOutput(loss=policy.loss, metrics={**policy.metrics, **measured})
