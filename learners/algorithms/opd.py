"""On-policy distillation: the policy samples, a teacher says of each token how likely it finds it (arXiv 2306.13649).

The advantage of a token is log p(teacher) - log p(policy): the gradient is that of the reverse KL divergence from the
teacher, token by token, without the effect of a token on later ones (a discount of 0). The policy is the one that is
being trained, at each step: with the recorded log-probability of an older one the gradient would have a second term,
which pushes away from that one. `learner.reference` is the teacher (its pass, elsewhere
`teacher_logprobs`: `learners/update.py: forward_passes`). Rewards are measured and train nothing; to train
on both, take another algorithm with a KL term of `k2`, whose gradient is this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

from learners.algorithms.base import REFERENCE, Moments
from learners.algorithms.objective import add_terms, reinforce
from learners.algorithms.policy_gradient import PolicyGradient
from learners.algorithms.terms import PolicyGradientConfig
from rlsys.config.learner import Correction
from rlsys.errors import require_bounds

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class OPDConfig(PolicyGradientConfig):
    name: str = "opd"
    is_correction: Correction = "tis"
    advantage_clip: Optional[float] = 10.0
    """Largest absolute value of a token's advantage, in nats, so that a token that the teacher would never write cannot
    dominate the loss. null: no bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bounds(self, "algorithm.", "null, or above 0", "advantage_clip")


class OPD(PolicyGradient):
    clipped, credits_tokens = False, True
    needs = frozenset({REFERENCE})
    needs_teacher = True  # against itself there is nothing to learn

    def __init__(self, config: OPDConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """Nothing yet: the teacher gives each token its own. Every group is trained that was played, whatever its
        rewards are."""
        return [reward * 0 for reward in rewards]  # nan of a failed sibling stays nan

    def credit(self, rows: Sequence[MicroBatch], moments: Moments) -> list[MicroBatch]:
        """The teacher's log-probability of each sampled token less the policy's, as it was recorded: what is reported.
        `loss` takes the policy's own."""
        return [self._with_distance(row, row.behavior_logprobs) for row in rows]

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """REINFORCE on each token's distance from the teacher, with an entropy term."""
        policy = reinforce(self.config, logp_T, self._with_distance(row, logp_T.detach()), denominator)
        return add_terms(self.config, policy, logp_T, entropy_T, row, denominator)

    def _with_distance(self, row: MicroBatch, policy_T: torch.Tensor) -> MicroBatch:
        if row.reference_logprobs is None:
            raise ValueError("a row without reference_logprobs: expected the pass of the teacher, learner.reference")
        keep, bound = row.loss_mask.bool(), self.config.advantage_clip
        advantages_T = (row.reference_logprobs - policy_T).masked_fill(~keep, 0.0)
        return replace(row, advantages=advantages_T if bound is None else advantages_T.clamp(-bound, bound))
