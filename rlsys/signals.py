"""Whether a group has a signal: whether its rewards give the algorithm anything to learn from.

All who ask, ask here, so that they agree:

    loop.oversample              the place of a group without signal goes to another
    rlsys.harvest                a group without signal is not trained
    curriculum.name=difficulty   a task whose groups have no signal rests
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from rlsys.summaries import GroupRef
from rlsys.types import Reward


class Advantages(Protocol):
    """The part of an algorithm that says it: see `learners.algorithms.base.Algorithm`."""

    def advantages(self, rewards: Sequence[float]) -> list[float] | None: ...


def rewards_of(group: GroupRef) -> list[float]:
    """One per sibling, `nan` for a failed one."""
    return [each.reward.value if isinstance(each.reward, Reward) else math.nan for each in group.summaries]


def has_signal(algorithm: Advantages, rewards: Sequence[float]) -> bool | None:
    """None where all siblings failed: that says nothing of the task."""
    return None if all(map(math.isnan, rewards)) else algorithm.advantages(rewards) is not None


def ever_lacks(algorithm: Advantages, group_size: int) -> bool:
    """Whether groups can be without signal: a baseline of the group leaves nothing of rewards that are all alike."""
    return not all(has_signal(algorithm, [reward] * group_size) for reward in (0.0, 1.0))


def never_has(algorithm: Advantages, group_size: int) -> bool:
    """Whether no group can have one: a sibling that is alone has nobody to be compared with."""
    return group_size == 1 and not any(has_signal(algorithm, [reward]) for reward in (0.0, 1.0))
