"""Follow a job: its log as it is written, a connection that is lost and found, and the exit code of its run."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from launch.tools.submit.server import JobState, NoSuchJob, Unreachable
from rlsys.errors import BadInput

TRY_AGAIN_S = 300.0  # for a lost connection
ASK_S = 2.0  # between two looks at the job's state
DRAIN_S = 15.0  # for the rest of the log of a job that has ended
STOPPED = 128 + 15  # what `rlsys train` ends with when it is asked to stop; Ray keeps no code of a stopped job
STOPS = (STOPPED, 128 + signal.SIGINT)
NO_PYTHON = 127  # of a shell that finds no such command
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class Followed(Protocol):
    """`Server`, as far as it is needed."""

    def state(self, job: str) -> JobState: ...
    def tail(self, job: str) -> AsyncIterator[str]: ...


@dataclass(frozen=True, slots=True)
class End:
    code: int | None  # None: it is not known, the job continues
    said: str  # a line for the user


def end_of(state: JobState) -> End:
    """Of a job that has ended."""
    if state.status == "STOPPED":
        return End(STOPPED, f"stopped, exit code {STOPPED}")
    if state.code is None:
        lines = (state.message or "").strip().splitlines()
        return End(1, f"failed before the run began: {lines[-1] if lines else 'Ray gives no reason'}")
    code = 128 - state.code if state.code < 0 else state.code  # Ray says -9 where a shell says 137
    if state.code < 0 and code not in STOPS:
        return End(code, f"failed, exit code {code}: killed by {_signal_name(-state.code)}")
    if code == NO_PYTHON:
        way = "activate rlsys's environment before `ray start`"
        return End(code, f"failed, exit code {code}: the head node finds no `python`: {way}")
    word = "stopped" if code in STOPS else {0: "done", 2: "refused"}.get(code, "failed")
    return End(code, f"{word}, exit code {code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Log:
    """The log so far: what comes again, because the connection was made again, is not written twice."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._written, self._seen = write, 0, 0

    def begin(self) -> None:
        self._seen = 0

    def take(self, piece: str) -> None:
        before, self._seen = self._seen, self._seen + len(piece)
        if self._seen > self._written:
            self._write(piece[max(self._written - before, 0) :])
            self._written = self._seen


async def follow(
    server: Followed,
    job: str,
    write: Callable[[str], None],
    say: Callable[[str], None],
    *,
    try_again_s: float = TRY_AGAIN_S,
    ask_s: float = ASK_S,
) -> End:
    """Until the job has ended, or for `try_again_s` seconds nothing answered. May be cancelled: the job continues.

    write: takes pieces of the log. say: takes lines about the connection.
    """
    log, lost_since = Log(write), math.inf
    tail = asyncio.create_task(_pump(server, job, log))
    try:
        while True:
            try:
                state = await asyncio.to_thread(server.state, job)
            except Unreachable as error:
                now, minutes = time.monotonic(), f"{try_again_s / 60:g} minutes"
                if lost_since == math.inf:
                    lost_since = now
                    say(f"the connection is lost ({error}): trying again for {minutes}; the job continues")
                if now - lost_since >= try_again_s:
                    return End(None, f"the cluster has not answered for {minutes}; the job continues")
                await _cancel(tail)  # it may wait for ever: nothing says that its peer is gone
                await asyncio.sleep(ask_s)
                continue
            except NoSuchJob:
                return End(1, "the cluster no longer knows the job: its head was started again, and every job ended")
            except BadInput as error:
                return End(None, f"{error}; the job continues")
            if lost_since != math.inf:
                lost_since = math.inf
                say("the connection is there again")
            if state.status in ENDED:
                await asyncio.wait([tail], timeout=DRAIN_S)
                return end_of(state)
            if tail.done():
                tail = asyncio.create_task(_pump(server, job, log))
            await asyncio.sleep(ask_s)
    finally:
        await _cancel(tail)


async def _pump(server: Followed, job: str, log: Log) -> None:
    """The log from its beginning, until its end or a failure: whether the job continues is asked elsewhere."""
    log.begin()
    with contextlib.suppress(Exception):  # fault boundary: whatever breaks the connection, it is made again
        async for piece in server.tail(job):
            log.take(piece)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
