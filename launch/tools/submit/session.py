"""Between a user's terminal and a job: Ctrl-C detaches, twice stops, and the last line says how the run ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from typing import Protocol

from launch.checks.machine import STOP_WAIT_S as RAY_S
from launch.tools.submit.follow import ASK_S, ENDED, STOPPED, End, Followed, end_of, follow
from launch.tools.submit.server import Unreachable
from rlsys.errors import RunFailed
from rlsys.untrusted import visible_lines

AGAIN_S = 3.0  # in which a second Ctrl-C stops the job
KILL_S = 30.0  # beyond the job's stop wait, for Ray to say that it has ended
DETACHED = 128 + signal.SIGINT


def say(line: str) -> None:
    print(f"rlsys: {line}", file=sys.stderr, flush=True)


def write(piece: str) -> None:
    """A piece of the job's log, which may hold what a model wrote."""
    sys.stdout.write(visible_lines(piece.expandtabs()))
    sys.stdout.flush()


class Controlled(Followed, Protocol):
    """`Server`, as far as it is needed."""

    @property
    def address(self) -> str: ...
    def stop(self, job: str) -> bool: ...


def follow_job(
    server: Controlled, job: str, run_dir: str | None, *, again_s: float = AGAIN_S, ask_s: float = ASK_S
) -> int:
    """Follow until the end. Returns the exit code: the run's, or that of a detached terminal.

    again_s: in which a second Ctrl-C stops the job. ask_s: between two looks at the job's state.
    """
    return asyncio.run(_follow(server, job, run_dir, again_s, ask_s))


async def _follow(server: Controlled, job: str, run_dir: str | None, again_s: float, ask_s: float) -> int:
    interrupts: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupts.put_nowait, None)
    following = asyncio.create_task(follow(server, job, write, say, ask_s=ask_s))
    interrupted = asyncio.create_task(interrupts.get())
    try:
        while not following.done():
            await asyncio.wait([following, interrupted], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                say(f"detaching in {again_s:g} s; Ctrl-C again stops the job")
                if not await _comes_again(interrupts, again_s):
                    if following.done():
                        break
                    say(f"detached: the job continues. {ways(server.address, job)}")
                    return DETACHED
                await asyncio.to_thread(server.stop, job)
                say("stopping the job: it saves a checkpoint; Ctrl-C detaches")
                interrupted = asyncio.create_task(interrupts.get())
        return conclude(following.result(), server.address, job, run_dir)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in (following, interrupted):
            task.cancel()


async def _comes_again(interrupts: asyncio.Queue[None], seconds: float) -> bool:
    try:
        await asyncio.wait_for(interrupts.get(), seconds)
    except TimeoutError:
        return False
    return True


def conclude(end: End, address: str, job: str, run_dir: str | None) -> int:
    """The last line. Raises RunFailed where the end was not seen."""
    if end.code is None:
        raise RunFailed(f"{end.said}. {ways(address, job)}")
    print(f"{end.said}{_what_next(run_dir, end.code)}", flush=True)
    return end.code


def _what_next(run_dir: str | None, code: int) -> str:
    if run_dir is None or code == 2:
        return ""
    return f"; rlsys report {run_dir}" if code == 0 else f"; the same command continues the run in {run_dir}"


def ways(address: str, job: str) -> str:
    return f"Return: rlsys submit --attach {job} --address {address}; stop: --stop {job}"


def stop_job(server: Controlled, job: str, *, ask_s: float = ASK_S) -> int:
    """Ask for a stop and wait for its end. Raises RunFailed where it does not come, BadInput for an unknown job."""
    state = server.state(job)
    if state.status in ENDED:
        print(f"{job} has ended before: {end_of(state).said}")
        return 0
    server.stop(job)
    say(f"stopping {job}: it saves a checkpoint, and is killed if it has not ended in {state.stop_wait or RAY_S:g} s")
    seconds = (state.stop_wait or RAY_S) + KILL_S
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(Unreachable):  # for a moment
            if (state := server.state(job)).status in ENDED:
                end = end_of(state)  # of a run that came to its own end before the stop: done, not to be continued
                print(f"{job}: {end.said}{_what_next(state.run_dir, STOPPED if end.code is None else end.code)}")
                return 0
        time.sleep(ask_s)
    raise RunFailed(f"{job} has not ended {seconds:.0f} s after it was asked to")
