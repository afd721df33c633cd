"""Supervision of what runs in other processes: detect a death, kill, restart, back off, give up.

Rollout workers, tool services and weight stores are supervised one by one, the ranks of a learner all together. Nothing
here knows Ray: a handle is whatever `create` returns.

    no handle --ensure(): create, start--> serves --declare_dead(): kill--> no handle --revive()--> ...
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rlsys.errors import BadInput, RunFailed
from rlsys.system.incidents import Incident, warn

log = logging.getLogger("rlsys.supervisor")

PING_EVERY_S = 5.0  # a death is known at once without; this finds what hangs
MAX_RESTARTS = 5  # without progress in between
MAX_PAUSE_S = 60.0  # between two starts that fail
H = TypeVar("H")


class GaveUp(RunFailed):
    """It cannot be restarted, or was restarted too often without progress."""


async def keep_pinging(ping: Callable[[], Awaitable[object]]) -> None:
    """Ask for a sign of life again and again. Raises what the first ping without an answer raises."""
    while True:
        await asyncio.sleep(PING_EVERY_S)
        await ping()


@dataclass(eq=False, slots=True)
class Supervised(Generic[H]):
    """One process, or several that live and die together, over all incarnations. Belongs to one event loop."""

    name: str  # "rollout:0"
    create: Callable[[], H]  # begins an incarnation, whose number is `restarts`
    start: Callable[[H], Awaitable[object]]  # returns once it serves. Raises RunFailed or BadInput
    kill: Callable[[H], object]
    find_place: Callable[[], Awaitable[object]] | None = None  # before a restart. Raises GaveUp where there is none
    goal: str = "progress"  # what makes the restarts before it count no more, as in "finishing a group"
    max_restarts: int | None = MAX_RESTARTS  # without that in between; None: no limit
    pause_s: float = 0.0  # after the first restart that fails; twice as long after each further one
    announces: bool = True  # says itself that it serves again, once it has started; else its owner calls `announce`
    handle: H | None = None  # None while it is dead
    starts: int = 0  # in all
    futile: int = 0  # restarts since the last progress
    _closed: bool = False
    _why: str = ""  # it died last, or did not start
    _seen: float | None = None  # when the present incarnation was last known to live
    _died: tuple[float, float | None] | None = None  # when it was found dead, and how long after its last sign of life
    _starting: asyncio.Task[None] | None = None  # of the present incarnation
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def restarts(self) -> int:
        return max(0, self.starts - 1)

    @property
    def exhausted(self) -> bool:
        return self.max_restarts is not None and self.futile >= self.max_restarts

    def note_progress(self) -> None:
        self.futile = 0
        self.note_alive()

    def note_alive(self) -> None:
        """It has just answered."""
        self._seen = time.monotonic()

    def announce(self, groups: int | None = None) -> None:
        """Say that it serves again, after a death. groups: those of the earlier one that are played again."""
        if self._died is None:
            return
        (when, detected_s), self._died = self._died, None
        after = time.monotonic() - when
        suffix = f"; {groups} groups are played again" if groups else ""
        text = f"{self.name} serves again, {after:.1f} s after it was found dead{suffix}"
        incident = Incident(
            kind="restart", who=self.name, text=text, detected_s=detected_s, recovered_s=after, groups=groups
        )
        warn(log, incident)

    async def ensure(self) -> H:
        """The incarnation that serves; the next one is started where there is none. Raises what its start raises, and
        GaveUp when there were too many."""
        while True:
            if self._starting is None:
                if self._closed or (self.starts and self.exhausted):
                    times = f"was restarted {self.max_restarts} times without {self.goal}"
                    raise GaveUp(f"{self.name} {'is stopped' if self._closed else times}; last: {self._why}")
                self._starting = asyncio.create_task(self._start_next())
                self._tasks.add(self._starting)
                self._starting.add_done_callback(self._forget)
            starting = self._starting
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:
                if not (self._closed and starting.cancelled()):  # else `stop` cancelled it, not the caller
                    raise
                raise GaveUp(f"{self.name} is stopped") from None
            if self._starting is starting and self.handle is not None:  # else it died meanwhile
                return self.handle

    async def _start_next(self) -> None:
        starting = self._starting
        handle: H | None = None
        try:
            if self.starts:
                if self.find_place is not None:
                    await self.find_place()
                self.futile += 1
            self.starts += 1
            handle = self.handle = self.create()
            await self.start(handle)
            self.note_alive()
            if self.announces:
                self.announce()
        except BaseException as error:
            if handle is not None:
                self.kill(handle)
            if self._starting is starting:
                self.handle, self._starting, self._why = None, None, str(error)
            raise

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        _ = task.cancelled() or task.exception()  # the waiting caller has received it, or has gone

    def declare_dead(self, handle: H | None, why: str, hint: str = "") -> bool:
        """Kill this incarnation. False where it is known to be dead: the first report counts, later ones say nothing.

        hint: for the log, such as where it has written its own.
        """
        if self._closed or handle is None or handle is not self.handle:
            return False
        now = time.monotonic()
        detected_s = None if self._seen is None else now - self._seen
        self._died, self._seen = self._died or (now, detected_s), None
        text = f"{self.name} is dead ({why}): restarting it{hint}"
        warn(log, Incident(kind="lost", who=self.name, text=text, detected_s=detected_s))
        self.handle, self._starting, self._why = None, None, why
        self.kill(handle)
        return True

    async def revive(self) -> H:
        """As `ensure`, but a start that fails is followed by another one, after ever longer pauses. Raises GaveUp."""
        while True:
            try:
                return await self.ensure()
            except GaveUp:
                raise
            except (BadInput, RunFailed) as error:
                pause_s = min(self.pause_s * 2.0 ** min(self.futile - 1, 30), MAX_PAUSE_S)
                following = f"; the next try is in {pause_s:.0f} s" if pause_s else ""
                log.warning("%s did not come back (%s)%s", self.name, error, following)
                await asyncio.sleep(pause_s)

    async def restart(self) -> H:
        """Another incarnation in the place of this one, dead or alive."""
        if self.handle is not None:
            self.kill(self.handle)
        self.handle, self._starting = None, None
        return await self.ensure()

    def close(self) -> None:
        """From now on no death is declared and no start begins."""
        self._closed = True

    async def stop(self, ask: Callable[[H], Awaitable[object]] | None = None) -> None:
        """No start continues, and none begins. What serves is asked to end; that, and what was starting, is killed."""
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        handle, self.handle = self.handle, None
        if handle is not None:
            if ask is not None:
                with suppress(Exception):
                    await ask(handle)
            self.kill(handle)
