"""Direct preference optimisation (arXiv 2305.18290). A row holds pairs: sample 2k is the chosen answer, 2k + 1 the
rejected one, so rows are packed two samples at a time (`rlsys.plan.pack`, samples_per_unit=2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from learners.algorithms.base import REFERENCE, Algorithm
from rlsys.errors import require
from rlsys.reductions import Reduction

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class DPOConfig:
    name: str = "dpo"
    beta: float = 0.1
    """Strength of DPO's penalty on the distance from the reference model; a larger beta keeps the policy closer. 0.1 is
    the usual choice."""

    def __post_init__(self) -> None:
        require(self.beta > 0, "algorithm.beta", self.beta, "above 0")


class DPO(Algorithm):
    reduction: Reduction = "sequence_sum"
    needs = frozenset({REFERENCE})

    def __init__(self, config: DPOConfig) -> None:
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """Of a pair [chosen, rejected]: 1 and -1; None for a tie or where one of them failed."""
        chosen, rejected = rewards
        return [1.0, -1.0] if chosen > rejected else None

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """The mean over pairs: a pair counts by what its two samples add to the denominator."""
        import torch

        from rlsys import batch, losses  # torch behind these two

        keep = row.loss_mask.bool()
        if not bool(keep.any()):
            return losses.LossOutput(loss=logp_T.sum() * 0.0, metrics={})  # a row without weight
        if row.reference_logprobs is None:
            raise ValueError("a row without reference_logprobs: expected the reference model's pass before the loss")
        num_samples = len(row.cu_seqlens) - 1
        if num_samples % 2:
            raise ValueError(
                f"{num_samples} samples in a row of preference pairs: expected chosen, rejected, chosen, ..."
            )
        policy_S1 = batch.sample_sums(logp_T, keep, row.cu_seqlens).unsqueeze(1)
        reference_S1 = batch.sample_sums(row.reference_logprobs, keep, row.cu_seqlens).unsqueeze(1)
        every = torch.ones_like(policy_S1[0::2])
        out = losses.dpo_loss(
            policy_S1[0::2],
            policy_S1[1::2],
            reference_S1[0::2],
            reference_S1[1::2],
            every,
            every,
            beta=self.config.beta,
            denominator=denominator / (row.share / (num_samples // 2)),
        )
        measured = batch.masked_means(keep, {"entropy/mean": entropy_T})
        rewards_S = self.config.beta * (policy_S1 - reference_S1).detach().squeeze(1)
        implied = {"dpo/chosen_reward": rewards_S[0::2], "dpo/rejected_reward": rewards_S[1::2]}
        measured |= batch.masked_means(torch.ones_like(rewards_S[0::2], dtype=torch.bool), implied)
        return losses.LossOutput(loss=out.loss, metrics={**out.metrics, **measured})
