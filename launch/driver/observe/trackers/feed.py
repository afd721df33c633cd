"""All trackers of a run. Each has a thread of its own: one that breaks or hangs is reported once and stops nothing."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from launch.driver.observe.trackers.base import Tracker
from launch.driver.observe.trackers.samples import choose_samples
from rlsys.errors import describe_error
from rlsys.types import Failure, Reward, Trajectory

log = logging.getLogger("rlsys.tracking")
FINISH_DEADLINE_S = 15.0  # for what a service has not taken yet: the run directory has it all
MOST_WAITING = 256  # calls that a tracker may be behind


class Trackers:
    """What the run tells all of its trackers. Nothing here raises, and nothing but `finish` waits."""

    def __init__(self, trackers: Mapping[str, Tracker], *, samples: int = 0, every: int = 1) -> None:
        """samples: episodes in a table; every: steps between two tables."""
        self._feeds = [Feed(name, tracker) for name, tracker in trackers.items()]
        self._samples, self._every = samples, every
        self._next_table = 0  # the step from which on the next one is due

    def log(self, row: Mapping[str, Any]) -> None:
        for feed in self._feeds:
            feed.send(lambda tracker: tracker.log(dict(row)))  # one of its own: a tracker may change it

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        for feed in self._feeds:
            feed.send(lambda tracker: tracker.log_evaluation(step, name, values))

    def choose_episodes(self, step: int, groups: Sequence[Sequence[Reward | Failure]]) -> list[tuple[int, int]]:
        """Which of a step's episodes `episodes` is to show, as (group, sibling); none between two tables."""
        due = step >= self._next_table and any(not feed.broken for feed in self._feeds)
        return choose_samples(groups, self._samples) if due else []

    def episodes(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        if trajectories:
            self._next_table = step + self._every
            for feed in self._feeds:
                feed.send(lambda tracker: tracker.episodes(step, trajectories))

    def finish(self) -> None:
        """Not for ever: the network may be gone."""
        until = time.monotonic() + FINISH_DEADLINE_S
        for feed in self._feeds:
            feed.end()
        for feed in self._feeds:
            feed.join(until)
        self._feeds = []


class Feed:
    """One tracker and the thread that calls it, in the order of the calls."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self.name, self.broken = name, False
        self._left_out = 0  # calls, since it fell behind
        self._tracker = tracker
        self._calls: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def send(self, call: Callable[[Tracker], None]) -> None:
        """Left out while it is too far behind, until it has taken half of what waits."""
        waiting = self._calls.qsize()
        if self.broken:
            return
        if waiting >= MOST_WAITING or (self._left_out and waiting > MOST_WAITING // 2):
            if not self._left_out:
                log.warning("%s is %d rows behind: it gets no more until it has taken some", self.name, MOST_WAITING)
            self._left_out += 1
            return
        if self._left_out:
            log.warning("%s takes rows again: %d were left out", self.name, self._left_out)
            self._left_out = 0
        self._calls.put(call)

    def end(self) -> None:
        self._calls.put(None)

    def join(self, until: float) -> None:
        """until: by the monotonic clock."""
        self._thread.join(max(until - time.monotonic(), 0.0))
        if self._thread.is_alive():
            hint = getattr(self._tracker, "late", "its last rows may be missing")
            self._give_up(f"{self.name} did not finish within {FINISH_DEADLINE_S:g} s: {hint}")

    def _work(self) -> None:
        try:
            while (call := self._calls.get()) is not None and not self.broken:
                call(self._tracker)
        except BaseException as error:  # a tracker of the user's own may also try to end Python
            self._give_up(f"{self.name} stopped taking rows: {describe_error(error)}")
            with contextlib.suppress(BaseException):  # what made it stop has been said
                self._tracker.finish()
            return
        try:
            self._tracker.finish()
        except BaseException as error:
            self._give_up(f"{self.name} did not finish: {describe_error(error)}")

    def _give_up(self, why: str) -> None:
        if not self.broken:
            self.broken = True
            log.warning("%s", why)
