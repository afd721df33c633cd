"""Which judged trajectories a stage trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import require_bounds


@dataclass(frozen=True, kw_only=True)
class VerdictsConfig:
    """SWiRL's sets, cut from one file of judged trajectories. For stages with `data`."""

    keep: Literal["none", "process", "outcome", "both"] = "none"
    """The filter. none: every trajectory. process: those in which every step is GOOD. outcome: those with the right
    answer. both: those with both."""
    equal: bool = False
    """As many as the smallest of the four sets has, drawn by the seed: the paper compares equal numbers."""
    trajectories: Optional[int] = None
    """So many of the set, drawn by the seed, a smaller number part of a larger one. null: all."""

    def __post_init__(self) -> None:
        require_bounds(self, "verdicts.", "at least 1, or null", "trajectories")

    @property
    def all(self) -> bool:
        return self.keep == "none" and not self.equal and self.trajectories is None


EVERY = VerdictsConfig()
