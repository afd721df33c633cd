"""What an algorithm is: how much credit each trajectory and each token gets, and the loss of one packed row.

Torch only, imported inside methods: reading a configuration loads the file of its algorithm. The learner does the rest:
forward passes, minibatches, gradients, optimizer steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from rlsys.reductions import Reduction
from rlsys.summaries import Truncated

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput

# (tensors, masks), one of each per row of this rank -> (mean, standard deviation with ddof 0, count) of what the masks
# keep, over all ranks. Every rank has to ask equally often.
Moments: TypeAlias = "Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], tuple[float, float, int]]"

REFERENCE = "reference"  # row.reference_logprobs
VALUES = "values"  # row.values, a critic, and `value_loss`
PROXIMAL = "proximal"  # row.proximal_logprobs


class Algorithm:
    """What is given here does for most: no pass but the policy's own, one step per batch, advantages as the driver gave
    them. An algorithm adds `advantages` and `loss`."""

    reads_streams: ClassVar[bool] = False
    """Whether `credit` reads token rewards, the streams of `row.rewards` after the first. A recipe whose reward has
    token rewards is refused with an algorithm that would drop them."""

    needs_teacher: ClassVar[bool] = False
    """Whether `learner.reference` has to be another model than the policy."""

    reduction: Reduction = "token_mean"
    """How token losses become one number: see `rlsys.reductions`."""

    truncated: Truncated = "train"
    """What becomes of an episode that a token limit cut off: see `rlsys.summaries.credit_group`."""

    needs: frozenset[str] = frozenset()
    """Forward passes that the learner makes before the first gradient: some of REFERENCE, VALUES, PROXIMAL."""

    epochs: int = 1
    """Passes over each batch. It gets epochs x minibatches optimizer steps."""

    minibatches: int = 1
    """How many optimizer steps one epoch is divided into."""

    entropy_coef: float = 0.0
    """Above 0, the `entropy_T` that `loss` gets carries a gradient."""

    credits_tokens: bool = False
    """Whether `credit` gives the tokens of a sample different advantages, which files of episodes then hold."""

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """One advantage per sibling of a group, from their rewards; `nan` in and out marks a failed sibling.

        Called by the driver. None when the group carries no signal: it is counted as filtered and not trained.
        """
        raise NotImplementedError(f"{type(self).__name__} has no advantages(rewards)")

    def credit(self, rows: Sequence[MicroBatch], moments: Moments) -> list[MicroBatch]:
        """The rows of this rank with token-level advantages (and returns, where a critic learns), same order.

        Called on the learner once per batch, after the forward passes. Rows without weight may be among them.
        """
        return list(rows)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """The row's part of its minibatch's loss: a sum weighted by `row.weights` over `denominator`, the shares of
        the whole minibatch, so that rows simply add up.

        logp_T, entropy_T: [T] float32 under the policy being trained, 0 where the loss mask is 0.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss(logp_T, entropy_T, row, denominator)")

    def value_loss(self, values_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        """The same for the critic, only where `needs` has VALUES. values_T: [T] float32, 0 where the mask is 0."""
        raise NotImplementedError(f"{type(self).__name__} has no critic: nothing needs its values")


def moments(
    tensors: Sequence[torch.Tensor],
    masks: Sequence[torch.Tensor],
    add_up: Callable[[list[float]], list[float]] = lambda numbers: numbers,
) -> tuple[float, float, int]:
    """Mean, standard deviation (ddof 0) and count of what the masks keep; (0, 0, 0) when they keep nothing.

    add_up: adds each number of a list over all ranks. By default there is one process.
    """
    values = [tensor.detach()[mask.bool()].double() for tensor, mask in zip(tensors, masks, strict=True)]
    total, count = add_up([sum(float(part.sum()) for part in values), float(sum(part.numel() for part in values))])
    mean = total / count if count else 0.0
    (squares,) = add_up([sum(float((part - mean).square().sum()) for part in values)])
    return mean, math.sqrt(squares / count) if count else 0.0, int(count)
