"""How a run waits: for work that a stop interrupts, for work that it must not, and for tasks in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

LEAST_GRACE_S = 0.5  # for what was cancelled to end, once a stop's time is over


class StopRequested(Exception):
    """Ctrl-C or SIGTERM: save, sum up, leave."""


class Tasks:
    """The tasks of one run. `pool_start` and `writing` are set where they are started; their errors end the run too."""

    def __init__(self, stop_deadline_s: float) -> None:
        self.stop_deadline_s = stop_deadline_s
        self.stop = asyncio.Event()  # set by Ctrl-C and SIGTERM
        self.stopped_at: float | None = None  # when that was
        self.gave_up = False  # the learner was busy for too long after a stop: the last checkpoint stands
        self.pool_start: asyncio.Task[None] | None = None  # engines and services start while the first stage trains
        self.writing: asyncio.Task[None] | None = None  # a checkpoint that was copied (launch.driver.run.saving)
        self._background: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None  # the first of theirs
        self._failed = asyncio.Event()  # set with it

    def request_stop(self) -> None:
        self.stopped_at = self.stopped_at or time.monotonic()
        self.stop.set()

    async def until(self, work: Awaitable[Any]) -> Any:
        """Await `work`, unless a stop is asked for (StopRequested) or a background task fails (its error)."""
        task = asyncio.ensure_future(work)
        stop, failed = (asyncio.ensure_future(event.wait()) for event in (self.stop, self._failed))
        try:
            while True:
                jobs = {job for job in (self.pool_start, self.writing) if job is not None and not job.done()}
                # Not on the background tasks: there is one for each open group.
                await asyncio.wait({task, stop, failed, *jobs}, return_when=asyncio.FIRST_COMPLETED)
                self._raise_errors()
                if task.done():
                    return task.result()
                if stop.done():
                    raise StopRequested
        finally:
            for waiter in (task, stop, failed):
                waiter.cancel()
            await asyncio.gather(task, stop, failed, return_exceptions=True)

    async def complete(self, work: Awaitable[Any], leave: Callable[[], Awaitable[object]] | None = None) -> Any:
        """Await `work` to its end, a stop or not: half an update is worth nothing. After a stop it has the deadline of
        the checkpoint that would follow.

        leave: called at a stop, to bring that end about.
        """
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stop.wait())
        leaving: asyncio.Future[object] | None = None
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                leaving = asyncio.ensure_future(leave()) if leave is not None else None
                await asyncio.wait({task}, timeout=self.grace_s)
            if task.done():
                return task.result()
            self.gave_up = True
            task.cancel()
            raise StopRequested
        finally:
            stop.cancel()
            if leaving is not None:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """In the background: its error ends the run."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()
            self._failed.set()

    def _raise_errors(self) -> None:
        for task in (self.pool_start, self.writing):  # a failure there is raised at once, and not when it is needed
            if task is not None and task.done() and not task.cancelled():
                task.result()
        if self._error is not None:
            raise self._error

    def forget_errors(self) -> None:
        """Those of background tasks that ended: the run continues without them."""
        self._error = None
        self._failed.clear()

    async def cancel_background(self) -> None:
        tasks, self._background = list(self._background), set()
        for task in tasks:
            task.remove_done_callback(self._on_end)  # what breaks while it is being cancelled does not fail the run
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def grace_s(self) -> float:
        """Seconds of the stop's deadline that are left, at least a moment."""
        spent = time.monotonic() - (self.stopped_at or time.monotonic())
        return max(self.stop_deadline_s - spent, LEAST_GRACE_S)

    def check_stop(self) -> None:
        if self.stop.is_set():
            raise StopRequested
