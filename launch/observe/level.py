"""How high a mean of a stage is now, and how high it was at its best: each over several steps.

The highest of hundreds of steps is luck where a step has few groups, and so is the lowest. So the best is the mean of
many groups, the present one that of a few steps, and both know of how many groups they are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import sqrt

LAST = 3  # steps of the present mean
GROUPS = 64  # of the best mean, at least; fewer where the stage has not had so many yet
NOISE = 1.5  # of the distance between rewards, for one group: how far chance takes a mean, by the root of the groups


@dataclass(frozen=True, slots=True)
class Over:
    """A mean over steps."""

    mean: float
    groups: float
    step: int  # the last of them

    @property
    def chance(self) -> float:
        """How far it may be from the truth, as a share of the distance that rewards have."""
        return NOISE / sqrt(self.groups)


class Level:
    """Of one mean, in the order of the steps."""

    def __init__(self) -> None:
        self._steps: deque[Over] = deque()
        self._best: tuple[float, Over] | None = None

    def add(self, step: int, mean: float, groups: float, distance: float) -> None:
        """distance: between the lowest and the highest reward seen."""
        self._steps.append(Over(mean, max(groups, 1.0), step))
        while len(self._steps) > LAST and sum(each.groups for each in list(self._steps)[1:]) >= GROUPS:
            self._steps.popleft()
        over = _over(list(self._steps))
        sure = over.mean - over.chance * distance  # a first step of few groups must not stay the best for good
        if self._best is None or sure > self._best[0]:
            self._best = sure, over

    @property
    def best(self) -> Over:
        if self._best is None:
            raise ValueError("no step yet: expected at least one")
        return self._best[1]

    @property
    def now(self) -> Over:
        return _over(list(self._steps)[-LAST:])

    def lost(self, distance: float, least: float) -> bool:
        """Whether it is below its best by more than `least`, and by more than chance takes it."""
        chance = sqrt(self.best.chance**2 + self.now.chance**2)
        return self.best.mean - self.now.mean > max(least, chance * distance)


def _over(steps: list[Over]) -> Over:
    groups = sum(each.groups for each in steps)
    return Over(sum(each.mean * each.groups for each in steps) / groups, groups, steps[-1].step)
