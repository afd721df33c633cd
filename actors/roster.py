"""The workers of a pool, for all who wait for one: who is ready, and whether the run can go on at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from actors.members import Member, State
from rlsys.errors import RunFailed

log = logging.getLogger("rlsys.pool")


class Roster:
    """Belongs to the driver's event loop, and so do the tasks that run beside its calls."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.failure: RunFailed | None = None
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def up(self) -> list[Member]:
        """Those that answer, with whatever weights."""
        return [member for member in self.members if member.state in (State.STALE, State.READY)]

    async def least_loaded(self) -> Member:
        """Waits for one that is ready. Raises RunFailed when the run cannot go on."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.failure is not None or any(m.state is State.READY for m in self.members)
            )
            if self.failure is not None:
                raise self.failure
            return min((m for m in self.members if m.state is State.READY), key=lambda m: m.in_flight)

    async def open(self, member: Member) -> None:
        """From now on it is given groups."""
        member.state = State.READY
        await self.notify()

    async def fail(self, why: str) -> None:
        """The run cannot go on: everyone who waits for a worker hears it."""
        self.failure = self.failure or RunFailed(why)
        await self.notify()

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _guarded(self, work: Any) -> None:
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
