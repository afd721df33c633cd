"""The workers of a pool, for all who wait for one: who is ready, who has room, and whether the run can go on at all.

A worker is given `in_flight` episodes at most, or one group; the others wait here, in order of arrival. So a worker
that comes back gets its share and no more, however many wait.

A group that was in flight when its worker died may be what ended it. It is a suspect: it waits until no other group
does, and plays on a worker with those of its company alone (`actors.members.suspect`), so that the next death is not
theirs who had nothing to do with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from actors.members import Assignment, State, WorkerRecord
from rlsys.errors import RunFailed

log = logging.getLogger("rlsys.pool")

SUSPECTS_WAIT_S = 30.0  # while others come and go; then a worker is kept free for them


class WorkerRegistry:
    """Belongs to the driver's event loop, and so do the tasks that run beside its calls."""

    def __init__(self, members: Sequence[WorkerRecord], in_flight: int) -> None:
        self.members = members
        self.failure: RunFailed | None = None
        self._in_flight = in_flight
        self._waiting: deque[tuple[Assignment, asyncio.Future[Assignment]]] = deque()
        self._suspects: deque[tuple[Assignment, asyncio.Future[Assignment]]] = deque()
        self._since = 0.0  # when a suspect was last served, or began to wait for all
        self._kept: WorkerRecord | None = None  # for suspects that have waited long: nobody else is played there
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def up(self) -> list[WorkerRecord]:
        """Those that answer, with whatever weights."""
        return [member for member in self.members if member.state in (State.STALE, State.READY)]

    async def admit(self, episodes: int, *, company: object = None) -> Assignment:
        """A place for a group on the least loaded worker that has room. Whoever gets it gives it back with `leave`.

        Raises RunFailed when the run cannot go on.
        """
        given: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()
        queue = self._waiting if company is None else self._suspects
        if company is not None and not self._suspects:
            self._since = asyncio.get_running_loop().time()
        queue.append((Assignment(episodes=episodes, company=company), given))
        self._serve()
        try:
            return await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled() and given.exception() is None:
                await self.leave(given.result())  # it came at the moment at which nobody wanted it any more
            raise

    async def leave(self, play: Assignment) -> None:
        assert play.member is not None
        play.member.playing.discard(play)
        await self.notify()

    def _serve(self) -> None:
        """Give out the places that there are: to suspects only where nobody else waits."""
        self._keep_one()
        while self._waiting and self._try_serve(*self._waiting[0]):
            self._waiting.popleft()
        if not self._waiting or self._kept is not None:
            # Not only the first: those of a company that is playing may join it.
            waited = len(self._suspects)
            self._suspects = deque(each for each in self._suspects if not self._try_serve(*each))
            if len(self._suspects) < waited:
                self._since = asyncio.get_running_loop().time()

    def _keep_one(self) -> None:
        """Groups of an evaluation hold no place in the buffer, so that training may go on for ever without them."""
        if not self._suspects:
            self._kept = None
        elif self._kept is None or self._kept.state is not State.READY:
            waited_s = asyncio.get_running_loop().time() - self._since
            open_to = [member for member in self.members if member.state is State.READY]
            late = waited_s > SUSPECTS_WAIT_S and open_to
            self._kept = min(open_to, key=lambda member: member.in_flight) if late else None

    def _try_serve(self, play: Assignment, given: asyncio.Future[Assignment]) -> bool:
        """Whether it waits no more."""
        if given.done():  # whoever waited has gone
            return True
        if self.failure is not None:
            given.set_exception(self.failure)
            return True
        open_to = [member for member in self.members if self._has_room(member, play)]
        if not open_to:
            return False
        play.member = min(open_to, key=lambda member: member.in_flight)
        play.handle = play.member.handle
        play.member.playing.add(play)
        given.set_result(play)
        return True

    def _has_room(self, member: WorkerRecord, play: Assignment) -> bool:
        if member.state is not State.READY or (member is self._kept and play.company is None):
            return False
        if not member.playing:
            return True
        together = all(other.company is play.company for other in member.playing)
        return together and member.in_flight + play.episodes <= self._in_flight

    async def ready(self) -> None:
        """Waits for a worker that serves. Raises RunFailed when the run cannot go on."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.failure is not None or any(m.state is State.READY for m in self.members)
            )
            if self.failure is not None:
                raise self.failure

    async def open(self, member: WorkerRecord) -> None:
        """From now on it is given groups."""
        member.state = State.READY
        await self.notify()

    async def fail(self, why: str) -> None:
        """The run cannot go on: everyone who waits for a worker hears it."""
        self.failure = self.failure or RunFailed(why)
        await self.notify()

    async def notify(self) -> None:
        self._serve()
        async with self._changed:
            self._changed.notify_all()

    def run_in_background(self, work: Any) -> asyncio.Task[None]:
        """Start supervision work as a task of its own; an error in it fails the run."""
        task = asyncio.create_task(self._guard(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _guard(self, work: Any) -> None:
        """Supervision that breaks is an error of the run, not a silence."""
        try:
            await work
        except Exception as error:
            log.exception("supervision of the rollout workers broke")
            await self.fail(f"supervision of the rollout workers broke: {type(error).__name__}: {error}")

    async def stop(self) -> None:
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
