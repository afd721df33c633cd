"""Which task comes when in an rl stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from rlsys.errors import require, require_bounds


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Order in which an rl stage draws its training tasks (`rlsys/curriculum.py`)."""

    name: Literal["uniform", "mixed", "difficulty", "staged"] = "uniform"
    """Strategy that orders the training tasks. uniform: every task once per epoch. mixed: levels by `weights`.
    difficulty: levels by how often their groups have a signal; tasks without one rest. staged: one level after
    another."""
    level: Optional[str] = None
    """Field of a task's record that holds its level, such as source or hops. null: the level that the environment
    gives."""
    weights: dict[str, float] = field(default_factory=dict)
    """Share of each level under mixed, such as {"2": 1, "3": 3}. Levels that are not named are left out."""
    order: tuple[str, ...] = ()
    """Order of the levels under staged. Levels that are not named are left out. (): sorted by the numbers in their
    names."""
    floor: float = 0.1
    """Smallest share of draws of a level under difficulty, as a fraction of the share that its size would give it."""
    max_rest: int = 8
    """Longest rest of a task without signal under difficulty, in epochs: it rests for 1, 2, 4 ... of them. An epoch of
    rest is as many draws of its level as the level has tasks."""
    pass_at: float = 0.8
    """Mean reward of a level's recent groups at which staged adds the next level. It is a threshold on rewards, not
    pass@k."""
    pass_groups: int = 16
    """Smallest number of recent groups of a level before staged may add the next one."""

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
