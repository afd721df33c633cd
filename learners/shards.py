"""How ZeRO divides the numbers of a group of parameters over the ranks, and how to divide them otherwise.

The optimizer holds the master weights and each of AdamW's moments as flat tensors, one for each group and rank:

    stages 1, 2   the group end to end, and at its end zeros, cut into parts of one size    aaaaabbb|bbcc0000
    stage 3       each parameter cut by itself, and at the end of each zeros                aaabbbc|aa0bb0c

with 5, 5 and 2 numbers on 2 ranks. So a checkpoint of any stage and number of ranks gives whole parameters, one at a
time, and these are cut for any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

Parts = Sequence[Sequence[torch.Tensor]]  # by rank, then by group: flat


class Place(NamedTuple):
    group: int
    start: int  # in the group end to end, or under stage 3 in the part of every rank
    numel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    groups: Sequence[Mapping[str, int]]  # elements of each parameter, in the order in which they lie
    ranks: int
    zero_stage: int

    def share(self, numel: int) -> int:
        """Of so many numbers on each rank, at least, with zeros on the last ones."""
        return -(-numel // self.ranks)

    def places(self) -> dict[str, Place]:
        """Where each parameter lies."""
        places: dict[str, Place] = {}
        for group, numels in enumerate(self.groups):
            start = 0
            for name, numel in numels.items():
                places[name] = Place(group, start, numel)
                start += self.share(numel) if self.zero_stage == 3 else numel
        return places


def join(parts: Parts, place: Place, division: Division) -> torch.Tensor:
    """One parameter, flat and whole. Raises ValueError where the parts are too short for it."""
    group, start, numel = place
    if division.zero_stage == 3:
        share = division.share(numel)
        tensor = torch.cat([mine[group][start : start + share] for mine in parts])[:numel]
    else:
        pieces, begin = [], 0
        for mine in parts:  # with or without the zeros at the end: no number lies behind them
            part = mine[group]
            low, high = max(start, begin), min(start + numel, begin + part.numel())
            if low < high:
                pieces.append(part[low - begin : high - begin])
            begin += part.numel()
        tensor = torch.cat(pieces) if pieces else torch.zeros(0)
    if tensor.numel() != numel:
        raise ValueError(f"{tensor.numel()} of {numel} numbers are there")
    return tensor


def cut(read: Callable[[str], torch.Tensor], division: Division, *, rank: int, group: int, size: int) -> torch.Tensor:
    """What a rank holds of a group: `size` numbers. read: one parameter, flat; called for those that the rank needs.

    Raises ValueError where the group does not fit.
    """
    numels, per_parameter = division.groups[group], division.zero_stage == 3
    min_size = sum(map(division.share, numels.values())) if per_parameter else division.share(sum(numels.values()))
    if size < min_size:
        raise ValueError(f"{size} numbers on a rank, {min_size} are needed")
    part = torch.zeros(size)
    begin = 0  # of a parameter: under stage 3 in the part, else in the group
    for name, numel in numels.items():
        if per_parameter:
            share = division.share(numel)
            mine = read(name)[rank * share : (rank + 1) * share]
            part[begin : begin + mine.numel()] = mine
            begin += share
            continue
        low, high = max(begin, rank * size), min(begin + numel, (rank + 1) * size)
        if low < high:
            part[low - rank * size : high - rank * size] = read(name)[low - begin : high - begin]
        begin += numel
    return part
