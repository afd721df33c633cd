"""Where an update is, and how all ranks leave it at the same row.

    driver    hold of every rank: it begins no row before it is told more, and says how many it has begun
    driver    resume of every rank: it leaves once it has begun as many as the one that had begun most; where a rank
              was past its first optimizer step, none leaves

So all ranks do the same collectives (docs/laws.md, law 7), and a row pays nothing for it: a rank looks at its own
memory, while its thread for pings hears the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Row = TypeVar("Row")

HELD = 2.5  # times a ping's timeout that a rank waits for the driver: the slowest answers, then all are told


class UpdateLeft(Exception):
    """The update in progress is left, before any optimizer step: the weights and moments are those before it."""


class RowGate:
    """Of one update on one rank. The rank's thread passes through it, other threads look and ask."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._begun = 0
        self._total = 0
        self._closed = False
        self._held = False
        self._held_s = 0.0
        self._stop_after: int | None = None

    # -- the rank's own thread ----------------------------------------------------------------------------------------

    def expect(self, total: int) -> None:
        """The update has so many rows, counted in each pass over them."""
        self._total = total

    def begin_row(self) -> None:
        """Raises UpdateLeft where the update is left before this row."""
        with self.changed:
            self._wait()
            self._begun += 1

    def through(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield each row after `begin_row` has counted it."""
        for row in rows:
            self.begin_row()
            yield row

    def close(self) -> None:
        """An optimizer step follows: from here on the update is finished. Raises UpdateLeft where it was left."""
        with self.changed:
            self._wait()
            self._closed = True

    def check(self) -> None:
        """Raises UpdateLeft where the update is left here; never waits."""
        with self.changed:
            if self._stop_after is not None and self._begun >= self._stop_after:
                raise UpdateLeft

    def _wait(self) -> None:
        if self._closed:
            return
        if not self.changed.wait_for(lambda: not self._held, self._held_s):
            raise TimeoutError(f"held after row {self._begun} for {self._held_s:g} s, and not told whether to leave")
        self.check()

    # -- other threads ------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[int, int]:
        """(begun, in all); (0, 0) before the update knows its rows."""
        return self._begun, self._total

    def hold(self, ping_timeout_s: float) -> int | None:
        """Begin no further row, for `HELD` times as long at most. Returns how many have begun; None once an optimizer
        step was reached."""
        with self.changed:
            if self._closed:
                return None
            self._held, self._held_s = True, HELD * ping_timeout_s
            return self._begun

    def resume(self, stop_after: int | None) -> None:
        """Continue, to the end or until so many rows have begun."""
        with self.changed:
            self._held, self._stop_after = False, None if self._closed else stop_after
            self.changed.notify_all()


def common_row(rows_by_rank: list[int | None]) -> int | None:
    """Where all ranks can leave, by what each `hold` returned; None where one of them cannot."""
    rows = [row for row in rows_by_rank if row is not None]
    return max(rows) if len(rows) == len(rows_by_rank) else None
