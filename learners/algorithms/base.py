"""What an algorithm is: how much credit each trajectory gets, and the loss of one packed row. Torch only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from rlsys.losses import LossOutput
from rlsys.types import Row


class Algorithm(Protocol):
    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        """One advantage per sibling of a group, from their rewards; `nan` in and out marks a failed sibling.

        None when the group carries no signal: it is counted as filtered and not trained.
        """
        ...

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: Row, *, denominator: float) -> LossOutput:
        """The row's share of the batch's loss: a masked sum over `denominator`, so that rows simply add up.

        logp_T, entropy_T: [T] float32 under the policy being trained, 0 at each sample's first token.
        """
        ...
