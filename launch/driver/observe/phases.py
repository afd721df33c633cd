"""Which phase of a step is in progress, since when, and whether that is far longer than usual.

A watchdog: the loop marks the phases (`launch.driver.observe.row.Clock`); a thread looks, so that a hang is seen while
it lasts.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from rlsys.system.patience import first_limit_s

REMEMBERED = 50  # durations of a phase
KNOWN = 3  # durations from which on a median says something
UNKNOWN = 10.0  # times the floor, at least: of a phase that has no median yet
FIRST = "first "  # before the name of a phase: of those alone of which it is not known what is usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One that is in progress."""

    name: str  # "wait_rollout"
    stage: str
    since_s: float
    usual_s: float | None  # the median of the last ones; None where too few are known
    known: int  # of how many

    def describe(self) -> str:
        if self.usual_s is None:
            return f"{self.name} has taken {self.since_s:.0f} s so far; it is one of the first of its kind"
        return (
            f"{self.name} has taken {self.since_s:.0f} s so far; usual are {self.usual_s:.2g} s (the median of "
            f"{self.known})"
        )


class PhaseWatch:
    """Written by the loop, read by a thread: what is shared is replaced whole."""

    def __init__(
        self,
        factor: float,
        floor_s: float,
        stage: Callable[[], str] = lambda: "",
        now: Callable[[], float] = time.monotonic,
        *,
        deadline_s: float = 0.0,
        forecast: Mapping[str, float] | None = None,
        long: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """stage: the one that is running. now: seconds on any clock. deadline_s: of the longest call that a phase may
        await. forecast: seconds of phases, where it is known how fast the machines are. long: seconds that a phase of
        the stage may well take, whatever is usual."""
        self._factor, self._floor_s, self._stage, self._now = factor, floor_s, stage, now
        self._deadline_s, self._forecast, self._long = deadline_s, forecast or {}, long
        self._durations = defaultdict[tuple[str, str], deque[float]](lambda: deque[float](maxlen=REMEMBERED))
        self._open: tuple[str, str, float] | None = None  # stage, phase, since
        self._said: tuple[str, str, float] | None = None

    def enter(self, name: str) -> None:
        self._open = (self._stage(), name, self._now())

    def leave(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            self._durations[opened[:2]].append(self._now() - opened[2])

    def current(self) -> Phase | None:
        opened = self._open
        if opened is None:
            return None
        stage, name, since = opened
        durations = list(self._durations.get((stage, name), ()))
        usual = median(durations) if len(durations) >= KNOWN else None
        return Phase(name=name, stage=stage, since_s=self._now() - since, usual_s=usual, known=len(durations))

    def overdue(self) -> Phase | None:
        """The phase in progress, once, when it has taken far longer than usual."""
        opened, phase = self._open, self.current()
        if phase is None or opened is None or opened == self._said or phase.since_s < self.limit_s(phase):
            return None
        self._said = opened
        return phase

    def limit_s(self, phase: Phase) -> float:
        if phase.usual_s is None:
            limit = first_limit_s(self._deadline_s, self._forecast.get(phase.name), UNKNOWN * self._floor_s)
            return max(limit, self._long().get(phase.name, 0.0), self._long().get(FIRST + phase.name, 0.0))
        return max(self._floor_s, self._factor * phase.usual_s, self._long().get(phase.name, 0.0))
