"""The deadline of an episode, whose clock stands still while the episode waits for its turn.

`async with deadline(300):` around the episode, and, however deep inside, `with pause_deadlines():` around a wait that
the episode does not cause: for a seat in the engine, or for others to leave; `with cut_at_deadline(cut):` around one
that has something to show when its time ends, as sampling has. It gives its clock, which is
stopped from outside: `stop_clocks`, `continue_clocks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

GRACE_S = 30.0  # for what was cut to hand over what there is, which takes an engine's front a moment


@dataclass(slots=True)
class Clock:
    timeout: asyncio.Timeout
    began: float
    outer: Clock | None = None  # of the deadline around this one: it stands still with it
    waited_s: float = 0.0  # while it stood still
    waits: int = 0  # unfinished waits of this episode's tasks
    since: float = 0.0  # when it was stopped
    left_s: float | None = None  # of the deadline, while it stands still
    cut_short: Callable[[], object] | None = None  # inside `cut_at_deadline`: its timeout is `GRACE_S` after its time
    ending: asyncio.TimerHandle | None = None  # calls that at its time
    cut: bool = False  # its time ended in something that was cut short: it is over `GRACE_S` later

    @property
    def ran_s(self) -> float:
        now = self.since if self.waits else asyncio.get_running_loop().time()
        return now - self.began - self.waited_s

    def stop(self) -> None:
        self.waits += 1
        if self.waits > 1:
            return
        self.since, when = asyncio.get_running_loop().time(), self.timeout.when()
        if when is not None and not self.timeout.expired() and not self.cut:
            self.left_s = when - self.since
            self.timeout.reschedule(None)
            if self.ending is not None:
                self.ending.cancel()

    def go_on(self) -> None:
        self.waits -= 1
        if self.waits:
            return
        now = asyncio.get_running_loop().time()
        self.waited_s += now - self.since
        if self.left_s is not None:
            with suppress(RuntimeError):  # the deadline is over: its task waited for no longer than this
                self.timeout.reschedule(now + self.left_s)
                if self.cut_short is not None:
                    self.ending = asyncio.get_running_loop().call_at(now + self.left_s - GRACE_S, self.end)
            self.left_s = None

    def end(self) -> None:
        """Its time is over in something that can be cut short."""
        assert self.cut_short is not None
        self.cut = True
        self.cut_short()


@dataclass(slots=True)
class Progress:
    """When something last went on in a group: an episode got a message, a reply or a reward, or left a line."""

    at: float
    in_line: int = 0  # its episodes that wait with their clocks stopped: there others go on before them


_CURRENT: ContextVar[Clock | None] = ContextVar("clock", default=None)
_GROUP: ContextVar[Progress | None] = ContextVar("progress", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[Clock]:
    """Raises TimeoutError, as `asyncio.timeout` does, once its clock has run for so long."""
    async with asyncio.timeout(seconds) as timeout:
        clock = Clock(timeout, asyncio.get_running_loop().time(), _CURRENT.get())
        before = _CURRENT.set(clock)
        try:
            yield clock
        finally:
            _CURRENT.reset(before)


def stop_clocks(clock: Clock | None) -> None:
    """Of a deadline, and of those around it."""
    while clock is not None:
        clock.stop()
        clock = clock.outer


def continue_clocks(clock: Clock | None) -> None:
    """As often as they were stopped."""
    while clock is not None:
        clock.go_on()
        clock = clock.outer


@contextmanager
def pause_deadlines() -> Iterator[None]:
    """Inside, the clocks of all surrounding deadlines stand still."""
    clock, group = _CURRENT.get(), _GROUP.get()
    assert clock is None or clock.cut_short is None, "a deadline is stopped in what is cut when it ends"
    stop_clocks(clock)
    if group is not None:
        group.in_line += 1
    try:
        yield
    finally:
        continue_clocks(clock)
        if group is not None:
            group.in_line -= 1
            note_progress()


@contextmanager
def cut_at_deadline(cut: Callable[[], object]) -> Iterator[Clock | None]:
    """Where the time of the deadline around this ends in here, `cut` is called in place of a TimeoutError. What it cuts
    short has to end by itself then: `GRACE_S` later it is a TimeoutError after all.

    Gives the deadline's clock, which others may stop meanwhile; None where there is none. What is in here stops none
    (`pause_deadlines`), and of one deadline one is inside at a time.
    """
    clock = _CURRENT.get()
    assert clock is None or clock.cut_short is None, "two waits at once that one deadline would cut"
    when = clock.timeout.when() if clock is not None else None
    if clock is None or when is None or clock.cut or clock.timeout.expired():
        yield clock
        return
    clock.cut_short = cut
    clock.timeout.reschedule(when + GRACE_S)
    clock.ending = asyncio.get_running_loop().call_at(when, clock.end)
    try:
        yield clock
    finally:
        clock.ending.cancel()
        clock.cut_short = clock.ending = None
        if clock.left_s is not None:  # it stands still
            clock.left_s -= GRACE_S
        elif not clock.cut and not clock.timeout.expired() and (when := clock.timeout.when()) is not None:
            clock.timeout.reschedule(when - GRACE_S)


@contextmanager
def track_progress() -> Iterator[Progress]:
    """Inside, collects the progress that the episodes of one group note with `note_progress`."""
    progress = Progress(at=asyncio.get_running_loop().time())
    before = _GROUP.set(progress)
    try:
        yield progress
    finally:
        _GROUP.reset(before)


def note_progress() -> None:
    group = _GROUP.get()
    if group is not None:
        group.at = asyncio.get_running_loop().time()


def idle_s(group: Progress, others: Iterable[Progress]) -> float:
    """Seconds since the last progress of the group; while it queues, since the last of any group in the queue."""
    latest = max([group.at, *(other.at for other in others)]) if group.in_line else group.at
    return asyncio.get_running_loop().time() - latest
