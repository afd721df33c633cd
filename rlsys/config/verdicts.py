"""Which judged trajectories a stage trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import require_bounds


@dataclass(frozen=True, kw_only=True)
class VerdictsConfig:
    """SWiRL's training sets, filtered from one file of judged trajectories. For stages with `data`."""

    keep: Literal["none", "process", "outcome", "both"] = "none"
    """Filter of the trajectories. none: all of them. process: those in which every step is GOOD. outcome: those with
    the right answer. both: those with both."""
    equal: bool = False
    """Whether every filter keeps as many trajectories as the smallest of the four sets has, drawn by the seed: the
    paper compares sets of equal size."""
    trajectories: Optional[int] = None
    """Number of trajectories drawn from the set by the seed. A smaller draw is part of a larger one. null: all of
    them."""

    def __post_init__(self) -> None:
        require_bounds(self, "verdicts.", "at least 1, or null", "trajectories")

    @property
    def all(self) -> bool:
        return self.keep == "none" and not self.equal and self.trajectories is None


EVERY = VerdictsConfig()
