"""Tokens of a row that begin two samples alike: a causal model computes the same for both, so that one does for both.

Siblings of a group have one prompt, and every prompt of a recipe begins with the same words. Only neighbours in a row
are compared: `rlsys.plan.pack` leaves siblings side by side where `learner.rows_in_order` holds.

Shapes: T tokens of a row, U of them computed, R = T - U that repeat one of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Shared:
    kept: torch.Tensor  # [U] the row tokens that are computed
    stand_in: torch.Tensor  # [T] which of the computed ones has what each row token would have
    repeats: torch.Tensor  # [R] the row tokens that are not
    originals: torch.Tensor  # [R] what stands in for them


def shared_starts(token_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> Shared | None:
    """token_ids: [T], cu_seqlens: [S+1], both in host memory. None where no sample begins as the one before it."""
    ids, bounds = token_ids.numpy(), cu_seqlens.tolist()
    stand_in = np.arange(len(ids))
    for before, start, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        length = min(start - before, end - start)
        differ = np.flatnonzero(ids[before : before + length] != ids[start : start + length])
        alike = int(differ[0]) if len(differ) else length
        stand_in[start : start + alike] = stand_in[before : before + alike]
    kept = stand_in == np.arange(len(ids))
    if kept.all():
        return None
    stand_in = (np.cumsum(kept) - 1)[stand_in]
    own, repeats = np.flatnonzero(kept), np.flatnonzero(~kept)
    return Shared(*map(torch.from_numpy, (own, stand_in, repeats, stand_in[repeats])))
