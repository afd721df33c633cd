"""What several sets come to together: the mean of a group, and its increase over an earlier evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from launch.evaluation.played import Played


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """Of the sets of one group, each counted once."""

    sets: int
    mean: float
    increase: float | None = None  # mean of ours / theirs - 1 over the sets of both; None where theirs has a 0, or none

    def told(self) -> str:
        more = "" if self.increase is None else f", average increase {self.increase:+.1%}"
        return f"mean {self.mean:.3f} over {self.sets} sets{more}"


def averages(ours: Mapping[str, Played], theirs: Mapping[str, Played] | None = None) -> dict[str, Average]:
    """By group and way of playing: {"real/greedy": ..}. Avg. Increase is Graph-RL's (arXiv 2506.00845, table 2)."""
    members: dict[str, list[str]] = {}
    for name, play in ours.items():
        if play.group and play.number is not None:
            members.setdefault(f"{play.group}/{name.rpartition('/')[2]}", []).append(name)
    return {name: _average(plays, ours, theirs or {}) for name, plays in members.items()}


def _average(plays: list[str], ours: Mapping[str, Played], theirs: Mapping[str, Played]) -> Average:
    found = {name: number for name in plays if (number := ours[name].number) is not None}
    pairs = [(found[name], theirs[name].numbers.get(ours[name].key)) for name in found if name in theirs]
    ratios = [mine.value / other.value - 1 for mine, other in pairs if other is not None and other.value > 0]
    whole = bool(ratios) and len(ratios) == len(found)
    return Average(
        sets=len(found),
        mean=math.fsum(number.value for number in found.values()) / len(found),
        increase=math.fsum(ratios) / len(ratios) if whole else None,
    )
