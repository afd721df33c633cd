"""Supervised fine-tuning: the log-probability of the demonstrator's tokens, and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learners.algorithms.base import Algorithm

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class SFTConfig:
    name: str = "sft"


class SFT(Algorithm):
    def __init__(self, config: SFTConfig) -> None:
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """Every demonstration counts the same, whatever its reward; None when all of them failed."""
        credit = [reward if math.isnan(reward) else 1.0 for reward in rewards]
        return credit if 1.0 in credit else None

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        from rlsys import batch, losses  # torch behind these two

        out = losses.nll_loss(logp_T, row.loss_mask, denominator=denominator, weights=row.weights)
        measured = batch.masked_means(row.loss_mask.bool(), {"entropy/mean": entropy_T})
        return losses.LossOutput(loss=out.loss, metrics={**out.metrics, **measured})
