"""A policy-gradient algorithm: what follows from its keys alone, and the baselines of a group.

An algorithm adds its advantages, and its loss out of the parts in `learners.algorithms.objective`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from learners.algorithms.base import PROXIMAL, REFERENCE, Algorithm
from learners.algorithms.terms import PolicyGradientConfig, kl_of


class PolicyGradient(Algorithm):
    clipped: ClassVar[bool] = True
    """Whether the loss compares the policy with the one before the update, as PPO does and REINFORCE does not."""

    def __init__(self, terms: PolicyGradientConfig) -> None:
        self.terms = terms
        self.reduction, self.truncated = terms.reduction, terms.truncated
        self.epochs, self.minibatches, self.entropy_coef = terms.epochs, terms.minibatches, terms.entropy_coef
        if kl_of(terms) is not None:
            self.needs = self.needs | {REFERENCE}
        # Only where several steps follow: in the first the proximal policy is the one that is being trained.
        if self.clipped and terms.epochs * terms.minibatches > 1 and terms.is_correction != "none":
            self.needs = self.needs | {PROXIMAL}


def with_signal(credit: list[float]) -> list[float] | None:
    """The advantages of a group, `nan` for failed siblings; None where all others are 0: there is nothing to learn."""
    return credit if any(advantage != 0 for advantage in credit if not math.isnan(advantage)) else None


def compare_with_group(rewards: Sequence[float], *, normalize_std: bool = True) -> list[float] | None:
    """Rewards less the mean of their group, or its z-scores; None without a signal."""
    import torch

    from rlsys.advantages import group_advantages  # torch behind it

    return with_signal(
        group_advantages(torch.tensor(rewards, dtype=torch.float64), normalize_std=normalize_std).tolist()
    )


def compare_with_others(rewards: Sequence[float]) -> list[float] | None:
    """Each reward less the mean of the other siblings'; None without a signal."""
    import torch

    from rlsys.advantages import leave_one_out  # torch behind it

    return with_signal(leave_one_out(torch.tensor(rewards, dtype=torch.float64)).tolist())


def raw_scores(rewards: Sequence[float]) -> list[float] | None:
    """The rewards themselves, for algorithms that find advantages on the learner. None when all siblings failed."""
    return None if all(math.isnan(reward) for reward in rewards) else list(rewards)
