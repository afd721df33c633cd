"""Which task comes when in an rl stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Which task comes when in an rl stage (`rlsys/curriculum.py`)."""

    name: Literal["uniform", "mixed", "difficulty", "staged"] = "uniform"
    """uniform: every task once per epoch. mixed: levels by `weights`. difficulty: levels by how often their groups
    have a signal, tasks without one rest. staged: one level after another."""
    level: Optional[str] = None
    """The field of a task's record that is its level, such as source or hops. null: what the environment says."""
    weights: dict[str, float] = field(default_factory=dict)
    """mixed: the share of each level, {"2": 1, "3": 3}; levels that are not named are left out."""
    order: tuple[str, ...] = ()
    """staged: the levels in their order; those that are not named are left out. (): by the numbers in their names."""
    floor: float = 0.1
    """difficulty: a level is never drawn less than this share of what its size would give it."""
    max_rest: int = 8
    """difficulty: a task without signal rests for 1, 2, 4 ... epochs, at most this many. An epoch of rest is as many
    draws of its level as the level has tasks."""
    pass_at: float = 0.8
    """staged: the mean reward of a level's recent groups at which the next one is added."""
    pass_groups: int = 16
    """staged: and how many groups of it there must have been."""

    def __post_init__(self) -> None:
        require_bounds(self, "curriculum.", "above 0 and at most 1", "floor")
        require_bounds(self, "curriculum.", "at least 1", "max_rest", "pass_groups")
        mixed = self.name == "mixed"
        require(
            bool(self.weights) == mixed, "curriculum.weights", self.weights, "the levels' shares" if mixed else "none"
        )
        weighed = not mixed or (min(self.weights.values()) >= 0 and sum(self.weights.values()) > 0)
        require(weighed, "curriculum.weights", self.weights, "0 or more each, and above 0 together")
        require(not self.order or self.name == "staged", "curriculum.order", self.order, "none, without staged")
