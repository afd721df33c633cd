"""One execution, seen from outside: fork, watch, end, tell what came out."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass

from . import frames, linux, memory, runner, setup
from .frames import BROKEN, READY, Limits, RunReport
from .memory import Unshared

_FIRST_LOOK_S, _LOOK_EVERY_S = 0.05, 0.05  # at memory


class Captured:
    """What a running execution wrote: its output and its report."""

    def __init__(self, limits: Limits) -> None:
        self.output = Unshared(limits.output_kb * 1024 + 1)
        self.report = Unshared(limits.output_kb * 4096 + 64)

    def clear(self) -> None:
        self.output.clear()
        self.report.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What all executions of a zygote share."""

    limits: Limits
    trees: tuple[str, ...]
    proc: int  # the host's /proc
    watch: bool  # whether it tells who started whom, so that the memory of all processes can be added up
    landlock_abi: int  # 0: the kernel has none
    program: bytes  # the system-call filter
    hang_up_fd: int  # its other end closes when the pool dies


def execute(request_fd: int, world: World, buffers: Captured) -> RunReport:
    """Run the code of the frame that waits at `request_fd`; what comes out lies in `buffers`.

    The child reads the code, not this process, and its bytes come to lie where no fork sees them: the next execution
    is a fork of this process, and what this has once held in its ordinary memory that one could find there.
    """
    started = time.monotonic()
    output_read, output_write = os.pipe()
    report_read, report_write = os.pipe()
    child = _fork(request_fd, world, output_write, report_write)
    os.close(output_write)
    os.close(report_write)
    try:
        status, stopped_for = _watch(child, {output_read: buffers.output, report_read: buffers.report}, started, world)
    finally:
        os.close(output_read)
        os.close(report_read)
    seconds = round(time.monotonic() - started, 6)
    sizes = {"output": buffers.output.size, "report": buffers.report.size}
    return RunReport(**sizes, status=status, stopped_for=stopped_for, seconds=seconds)


def _fork(request_fd: int, world: World, output_fd: int, report_fd: int) -> int:
    """Start the child, as PID 1 of its own namespace where there are namespaces."""
    base = memory.address_space(world.proc)
    if not world.limits.weaker:
        myself = os.pidfd_open(os.getpid())
        linux.unshare(linux.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        _be_the_child(request_fd, world, base, output_fd, report_fd)
    if not world.limits.weaker:
        linux.setns(myself, linux.CLONE_NEWPID)
        os.close(myself)
    return child


def _be_the_child(request_fd: int, world: World, base: int, output_fd: int, report_fd: int) -> None:
    try:
        request = frames.read(request_fd)
        if request is None:
            raise EOFError("the pool has gone")
        null = os.open("/dev/null", os.O_RDWR)  # its own: locks and flags of a shared one outlive an execution
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(null, 2)  # tracebacks of threads and warnings are not part of the result
        os.dup2(report_fd, 3)
        os.closerange(4, 4096)  # the zygote itself was started with three descriptors and holds a dozen
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born ignoring it
        os.environ.clear()
        os.environ.update({"HOME": "/tmp", "LANG": "C.UTF-8"})
        setup.confine(world.limits, base, world.trees, world.landlock_abi, world.program)
    except BaseException as error:
        os.write(3, BROKEN + repr(error).encode())
        os._exit(1)
    os.write(3, READY)
    runner.run(request["code"], 3, world.limits.output_kb * 1024)


def _watch(child: int, buffers: dict[int, Unshared], started: float, world: World) -> tuple[int, str]:
    """Read what comes until the child ends, or end it: at the deadline, above a limit, when the pool is gone.

    (its status as wait() gives it, why it was stopped).
    """
    limits = world.limits
    output = next(iter(buffers.values()))
    base = memory.private(world.proc, "self")
    deadline, look = started + limits.timeout_s, started + _FIRST_LOOK_S
    ended = os.pidfd_open(child)
    poll = select.poll()
    for fd in (*buffers, ended):
        poll.register(fd, select.POLLIN)
    poll.register(world.hang_up_fd, 0)
    stopped_for = ""
    try:
        while not stopped_for:
            now = time.monotonic()
            if now >= deadline:
                stopped_for = "timeout"
                break
            if now >= look:
                look = now + _LOOK_EVERY_S
                if world.watch and memory.growth(world.proc, base) > limits.total_memory_mb * 2**20:
                    stopped_for = "memory"
                    break
            ready = dict(poll.poll(1000 * (min(deadline, look) - now)))
            if world.hang_up_fd in ready:
                os._exit(0)
            for fd, place in buffers.items():
                if fd in ready and not place.take(fd):
                    poll.unregister(fd)
            if output.full:
                stopped_for = "output"
            if ended in ready:
                break
    finally:
        os.close(ended)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    for fd, place in buffers.items():  # all writers are gone: this ends
        while place.take(fd):
            pass
    if not stopped_for and output.full:
        stopped_for = "output"
    cpu_s = usage.ru_utime + usage.ru_stime
    exhausted = os.waitstatus_to_exitcode(status) == -signal.SIGKILL and cpu_s > setup.cpu_seconds(limits) - 1
    return status, "timeout" if exhausted and stopped_for != "output" else stopped_for
