"""Sequence parallelism: ranks that share each packed row, and hold a part of its tokens each.

Everything in a transformer but attention is computed token by token. For attention the ranks of a group exchange
tokens for heads, so that each sees the whole row with a share of the heads, and back (DeepSpeed Ulysses, Jacobs et al.
2023). What the tokens of a row get is added up at the end: every rank has the whole loss and goes back through its own
part, and the gradients' sum over all ranks, which ZeRO makes anyway, is that of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from rlsys.errors import BadInput

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """The ranks that share a row, seen from one of them."""

    size: int
    place: int  # of this rank among them, and of its part in the row
    processes: Any

    def part(self, num_tokens: int) -> slice:
        """This rank's tokens of a row that `pad` has made divisible."""
        size = num_tokens // self.size
        return slice(self.place * size, (self.place + 1) * size)

    def pad(
        self, token_ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The row with as many tokens for each rank: what is missing is one more sample at its end."""
        missing = -token_ids.numel() % self.size
        if not missing:
            return token_ids, position_ids, cu_seqlens
        token_ids = torch.cat([token_ids, token_ids.new_zeros(missing)])
        position_ids = torch.cat([position_ids, torch.arange(missing, device=position_ids.device)])
        return token_ids, position_ids, torch.cat([cu_seqlens, cu_seqlens[-1:] + missing])

    def exchange(self, x: torch.Tensor) -> torch.Tensor:
        """[1, heads, t, dim] of this rank's tokens to [1, heads / size, T, dim] of the row, and back from
        [1, T, heads / size, dim] to [1, t, heads, dim]: of the second axis each rank gets a part, of the third all."""
        parts = x.squeeze(0).unflatten(0, (self.size, -1))
        received: torch.Tensor = _Exchange.apply(parts, self.processes)
        return received.transpose(0, 1).flatten(1, 2)[None]

    def add_up(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over the group's ranks, which all go on with it alike: a gradient goes back as it comes."""
        total: torch.Tensor = _AddUp.apply(x, self.processes)
        return total

    def repeats(self, heads: int, kv_heads: int) -> int:
        """How often each head of keys and values is repeated so that the ranks can share them.

        Raises BadInput where they cannot share the heads of the queries."""
        if heads % self.size:
            raise BadInput(key="learner.sequence_parallel", found=self.size, expected=f"a divisor of {heads} heads")
        return next(times for times in range(1, heads + 1) if kv_heads * times % self.size == 0)


def make_sequence_group(size: int, timeout: timedelta) -> SequenceGroup | None:
    """Of this rank with its neighbours in number; None where each rank has rows of its own. A collective."""
    if size == 1:
        return None
    rank, own = dist.get_rank(), None
    for first in range(0, dist.get_world_size(), size):  # each rank takes part in the making of every group
        members = range(first, first + size)
        processes = dist.new_group(list(members), timeout=timeout)
        if rank in members:
            own = SequenceGroup(size=size, place=rank - first, processes=processes)
    return own


class _Exchange(torch.autograd.Function):
    """Part number i of x [size, ...] goes to rank i of the group, and comes from it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, processes: Any) -> torch.Tensor:
        ctx.processes = processes
        return _exchange(x, processes)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _exchange(grads[0], ctx.processes), None


def _exchange(x: torch.Tensor, processes: Any) -> torch.Tensor:
    x = x.contiguous()
    received = torch.empty_like(x)
    dist.all_to_all_single(received, x, group=processes)
    return received


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, processes: Any) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total, group=processes)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None
