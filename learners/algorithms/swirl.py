"""SWiRL's step-wise policy gradient (arXiv 2504.04736): offline states, on-policy actions, a reward for each action.

A group is one state, the prefix of a recorded trajectory, with several actions sampled in it. The actions before it are
context, so the loss is -(R - b) * sum over the action's tokens of log p, and a KL term towards the initial model.
Baseline, coefficient and estimator are not published: the defaults here are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from learners.algorithms.objective import add_terms, reinforce
from learners.algorithms.policy_gradient import PolicyGradient, compare_with_group, compare_with_others, with_signal
from learners.algorithms.terms import KLTerm, PolicyGradientConfig
from rlsys.config.learner import Correction
from rlsys.reductions import Reduction

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class SWiRLConfig(KLTerm, PolicyGradientConfig):
    name: str = "swirl"
    reduction: Reduction = "sequence_sum"
    is_correction: Correction = "tis"
    baseline: Literal["leave_one_out", "group_mean", "none"] = "leave_one_out"
    """Baseline that is subtracted from the reward of an action: the mean reward of the other actions in its state, or
    of all of them, or nothing. none is for states with a single action."""


class SWiRL(PolicyGradient):
    clipped = False

    def __init__(self, config: SWiRLConfig) -> None:
        super().__init__(config)
        self.config = config

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """R - b for each action of a state; None where no action would be pushed either way."""
        if self.config.baseline == "leave_one_out":
            return compare_with_others(rewards)
        if self.config.baseline == "group_mean":
            return compare_with_group(rewards, normalize_std=False)
        return with_signal(list(rewards))

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """-(R - b) log p of each token of the action, with its KL and entropy terms."""
        policy = reinforce(self.config, logp_T, row, denominator)
        return add_terms(self.config, policy, logp_T, entropy_T, row, denominator)
