"""`asyncio.timeout` for thousands of requests per second: one timer for all of them, where it makes one for each."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadlines:
    """`with deadlines.begin(): await ..` raises TimeoutError after `seconds`. Lives in one event loop.

    All have the same length, so the first that began is the first to end, and the timer waits for that one only.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[Deadline, float] = {}  # when it passes, the earliest first
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # asked for once: Python asks the system each time

    def begin(self) -> Deadline:
        return Deadline(self)

    def open(self, deadline: Deadline) -> asyncio.Task[Any] | None:
        """The running task."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        self._open[deadline] = end = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(end, self._pass, loop)
        return asyncio.current_task(loop)

    def close(self, deadline: Deadline) -> None:
        self._open.pop(deadline, None)

    def _pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._open:
            deadline, end = next(iter(self._open.items()))
            if end > loop.time():
                self._timer = loop.call_at(end, self._pass, loop)
                break
            del self._open[deadline]
            deadline.passed = True
            deadline.task.cancel()


class Deadline:
    __slots__ = ("_all", "passed", "task")

    def __init__(self, all: Deadlines) -> None:
        self._all = all
        self.passed = False

    def __enter__(self) -> None:
        task = self._all.open(self)
        assert task is not None
        self.task = task

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._all.close(self)
        if self.passed:  # as asyncio.timeout does: a cancellation from elsewhere goes on
            if self.task.uncancel() <= 0 and kind is asyncio.CancelledError:
                raise TimeoutError
