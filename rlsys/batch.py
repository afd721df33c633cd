"""What the learner is given and what it answers: samples packed into rows of tensors.

Shapes: T tokens of one packed row, S samples in a row, M reward streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsys.metrics import Metrics

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One packed micro-batch: samples side by side, no padding, positions restarting at each sample.

    The optional tensors are filled in by the learner, with `dataclasses.replace`, before the first gradient.
    """

    token_ids: torch.Tensor  # [T] int64
    position_ids: torch.Tensor  # [T] int64, 0 at each sample's first token
    cu_seqlens: torch.Tensor  # [S+1] int32, sample s is cu_seqlens[s]:cu_seqlens[s+1]
    loss_mask: torch.Tensor  # [T] float32, 0 or 1
    behavior_logprobs: torch.Tensor  # [T] float32
    advantages: torch.Tensor  # [T] float32
    versions: torch.Tensor  # [T] int64, -1 where nothing was sampled
    weights: torch.Tensor  # [T] float32, what each token's loss is multiplied by; 0 where the mask is 0
    first_turns: torch.Tensor  # [S] int64, which message of its trajectory each sample begins with, from 1
    share: float  # what the row adds to the denominator of its minibatch
    minibatch: int = 0  # which optimizer step of an epoch it belongs to
    rewards: torch.Tensor | None = None  # [M, T] float32: the value on each sample's last sampled token, then streams
    discounts: tuple[float, ...] = ()  # [M] of each stream; 1 for the value, where an algorithm may put its own
    reference_logprobs: torch.Tensor | None = None  # [T] float32, of the frozen reference model
    proximal_logprobs: torch.Tensor | None = None  # [T] float32, of the policy before the update's first step
    values: torch.Tensor | None = None  # [T] float32, the critic's before the update; of the state before token t
    returns: torch.Tensor | None = None  # [T] float32, what the critic learns

    @property
    def num_tokens(self) -> int:
        return int(self.token_ids.numel())


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Everything one update trains on: in one optimizer step, or in one for each minibatch and epoch."""

    rows: tuple[Row, ...]
    num_samples: int
    num_loss_tokens: int
    version: int  # the version being trained; lag is counted up to it
    denominators: tuple[float, ...]  # of each minibatch: the shares of all its rows, over all ranks

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What one update did. `applied` is False when the policy took no step: none of its gradients was finite."""

    applied: bool
    metrics: Metrics
    seconds: float
