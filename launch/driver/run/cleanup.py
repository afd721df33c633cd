"""No process is left behind, however a run ends.

Every process of a run carries `RLSYS_OWNER=<machine>:<driver's pid>:<its start time>` in its environment, children of
children too, and a semaphore in its name. Whatever bears the tag of a driver of this machine that is no longer alive is
an orphan, and the next run removes it. A folder of weights belongs to the process that holds a lock on it
(`rlsys.system.memory`).
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import psutil

from launch.driver.run import parent
from rlsys.system import memory, orphans

VARIABLE = orphans.VARIABLE
GRACE_S = 3.0  # for processes that nobody waits for any more, before they are killed
LOOKS = 4  # at most: a process that starts others as fast as they end is ended by the next run
SAME_S = parent.SAME_S
STOPS = parent.STOPS


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since boot: the wall clock may be moved. None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def tag() -> str:
    """This process as an owner."""
    return f"{orphans.machine()}:{os.getpid()}:{_start_time(os.getpid())}"


def is_dead_owner(owner: str) -> bool:
    """Whether `owner` ran on this machine and is gone."""
    machine, pid, started = (owner.split(":") + ["", ""])[:3]
    return machine == orphans.machine() and pid.isdigit() and _start_time(int(pid)) != started


def find_owned(owner: str | None = None) -> list[psutil.Process]:
    """Processes that bear `owner`'s tag; with None, those whose owner is dead."""
    processes = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            owner_tag = process.environ().get(VARIABLE)
        except psutil.Error:  # not ours to look at, or gone meanwhile
            continue
        if owner_tag and (owner_tag == owner if owner else is_dead_owner(owner_tag)):
            processes.append(process)
    return processes


def end_orphans() -> list[psutil.Process]:
    """End the processes of dead drivers. Returns those that are there all the same."""
    return end_processes(find_owned)


def end_own() -> list[psutil.Process]:
    """End every process that this one, or a child of it, has started. Returns those that survive."""
    return end_processes(partial(find_owned, tag()))


def end_run(owner: str) -> str:
    """End the processes of a dead driver and sweep what it left. Returns a line about those that survive, or ""."""
    message = describe_survivors(end_processes(partial(find_owned, owner)))
    memory.sweep(memory.memory_root())
    orphans.remove_left_behind(is_dead_owner)
    return message


def end_processes(look: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """SIGTERM, a moment, SIGKILL; and again for what one of them has started meanwhile."""
    remaining: list[psutil.Process] = []
    for _ in range(LOOKS):
        processes = [process for process in look() if process not in remaining]
        if not processes:
            break
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                with contextlib.suppress(psutil.Error):  # it ended by itself
                    process.send_signal(number)
            _, processes = psutil.wait_procs(processes, timeout=GRACE_S)
        remaining += processes
    return remaining


def describe_survivors(processes: Sequence[psutil.Process]) -> str:
    """One line about processes that not even SIGKILL has ended, or "" where there are none."""
    names = []
    for process in processes:
        with contextlib.suppress(psutil.Error):  # gone by now
            names.append(f"{process.pid} {process.name()}")
    effect = "they hold what they have, a GPU perhaps, until the kernel lets go of them"
    return f"rlsys: processes that do not end: {', '.join(names)}: {effect}" if names else ""


class Early:
    """Signals that come before the loop has its own handlers.

    A handler's exception can be lost, in a callback or a `__del__`, and Ray puts its own handler over ours while it
    starts. So the interpreter itself notes every signal, in a socket, and `stop_if_asked` looks there.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._noted: list[int] = []
        self._raised = -math.inf  # when
        self.take_over()

    def take_over(self) -> None:
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, self._stop)

    def _stop(self, number: int, _: object) -> None:
        """A stop that is sent to all processes of a group may come twice: the second must not break into tidying up."""
        before, self._raised = self._raised, time.monotonic()
        if self._raised - before > SAME_S:
            raise SystemExit(128 + number)

    def pending_stop_signals(self) -> list[int]:
        """Numbers of the signals so far that ask to stop, in their order."""
        with contextlib.suppress(BlockingIOError):
            while signals := self._reader.recv(4096):
                self._noted += [number for number in signals if number in STOPS]
        return self._noted

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()


early: Early | None = None  # of this process, between the ends of `orderly_exit`


def pending_signals() -> list[int]:
    """SIGINT and SIGTERM that came since `orderly_exit` began, as far as no loop has taken them."""
    return early.pending_stop_signals() if early is not None else []


def stop_if_asked() -> None:
    """Put the signal handlers back that something replaced; a stop signal that came meanwhile ends the process."""
    if early is not None:
        early.take_over()
    for number in pending_signals():
        raise SystemExit(128 + number)


@contextlib.contextmanager
def orderly_exit() -> Iterator[None]:
    """Orphans of dead runs go first; afterwards no process of this one is left."""
    global early
    early = Early()
    parent.tell(owner=tag())
    try:
        if message := describe_survivors(end_orphans()):
            print(message, file=sys.stderr)
        memory.sweep(memory.memory_root())
        orphans.remove_left_behind(is_dead_owner)
        yield
    finally:
        for number in STOPS:  # tidying up is short, and must not be left half-done
            signal.signal(number, signal.SIG_IGN)
        early.close()
        early = None
        if "ray" in sys.modules:
            import ray

            ray.shutdown()
        if message := describe_survivors(end_own()):
            print(message, file=sys.stderr)
        orphans.remove_left_behind(tag().__eq__)
