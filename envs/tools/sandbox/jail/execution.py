"""One execution, seen from outside: fork, watch, end, tell what came out."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Any

from . import linux, memory, runner, setup
from .setup import Limits

_READY = b"r"  # the child's first byte: walls up, code not begun, so nothing hostile can have written it
_BROKEN = b"b"
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.05, 0.05  # at memory
_PIECE = 65536


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


def execute(code: str, world: World) -> dict[str, Any]:
    """`text` and `outcome` of a run, or `broken` where the walls could not be put up; and `seconds`."""
    started = time.monotonic()
    output_read, output_write = os.pipe()
    report_read, report_write = os.pipe()
    child = _fork(code, world, output_write, report_write)
    os.close(output_write)
    os.close(report_write)
    try:
        told = _watch(child, output_read, report_read, started, world)
    finally:
        os.close(output_read)
        os.close(report_read)
    return {**told, "seconds": round(time.monotonic() - started, 6)}


def _fork(code: str, world: World, output_fd: int, report_fd: int) -> int:
    """Start the child, as PID 1 of a namespace of its own where there are namespaces."""
    base = memory.address_space(world.proc)
    if not world.limits.weaker:
        myself = os.pidfd_open(os.getpid())
        linux.unshare(linux.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        _be_the_child(code, world, base, output_fd, report_fd)
    if not world.limits.weaker:
        linux.setns(myself, linux.CLONE_NEWPID)
        os.close(myself)
    return child


def _be_the_child(code: str, world: World, base: int, output_fd: int, report_fd: int) -> None:
    try:
        null = os.open("/dev/null", os.O_RDWR)  # its own: locks and flags of a shared one outlive an execution
        os.dup2(null, 0)
        os.dup2(output_fd, 1)
        os.dup2(null, 2)  # tracebacks of threads and warnings are nobody's business
        os.dup2(report_fd, 3)
        os.closerange(4, 4096)  # the zygote itself was started with three descriptors and holds a dozen
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born ignoring it
        os.environ.clear()
        os.environ.update({"HOME": "/tmp", "LANG": "C.UTF-8"})
        setup.confine(world.limits, base, world.trees, world.landlock_abi, world.program)
    except BaseException as error:
        os.write(3, _BROKEN + repr(error).encode())
        os._exit(1)
    os.write(3, _READY)
    runner.run(code, 3, world.limits.output_kb * 1024)


def _watch(child: int, output_fd: int, report_fd: int, started: float, world: World) -> dict[str, str]:
    """Read what comes until the child ends, or end it: at the deadline, above a limit, when the pool is gone."""
    limits = world.limits
    room = {output_fd: limits.output_kb * 1024 + 1, report_fd: limits.output_kb * 4096 + 64}
    taken = {output_fd: bytearray(), report_fd: bytearray()}
    base = memory.private(world.proc, "self")
    deadline, look = started + limits.timeout_s, started + _FIRST_LOOK_S
    ended = os.pidfd_open(child)
    poll = select.poll()
    for fd in (output_fd, report_fd, ended):
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
            for fd in (output_fd, report_fd):
                if fd in ready and not _take(fd, taken[fd], room[fd]):
                    poll.unregister(fd)
            if len(taken[output_fd]) >= room[output_fd]:
                stopped_for = "output"
            if ended in ready:
                break
    finally:
        os.close(ended)
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    for fd in (output_fd, report_fd):  # all writers are gone: this ends
        while _take(fd, taken[fd], room[fd]):
            pass
    if not stopped_for and len(taken[output_fd]) >= room[output_fd]:
        stopped_for = "output"
    cpu_s = usage.ru_utime + usage.ru_stime
    exhausted = os.waitstatus_to_exitcode(status) == -signal.SIGKILL and cpu_s > setup.cpu_seconds(limits) - 1
    if exhausted and stopped_for != "output":
        stopped_for = "timeout"
    return _told(bytes(taken[output_fd]), bytes(taken[report_fd]), status, stopped_for, limits)


def _take(fd: int, taken: bytearray, room: int) -> bool:
    """Read once. False at the end, or when more came than there is room for."""
    piece = os.read(fd, min(_PIECE, room - len(taken)))
    taken += piece
    return bool(piece) and len(taken) < room


def _told(output: bytes, report: bytes, status: int, stopped_for: str, limits: Limits) -> dict[str, str]:
    if report[:1] != _READY:
        if stopped_for == "timeout":
            return {"broken": f"the walls were not up after {limits.timeout_s:g} s"}
        return {"broken": report[1:].decode(errors="replace") or f"the child ended with status {status}"}
    printed = output[: limits.output_kb * 1024].decode(errors="replace")
    kind, said = report[1:2], report[2:].decode(errors="replace")
    exit_code = os.waitstatus_to_exitcode(status)
    if stopped_for == "output":
        return {"outcome": "output", "text": f"{printed}\n[output cut at {limits.output_kb} KB]"}
    if stopped_for == "timeout":
        return {"outcome": "timeout", "text": f"TimeoutError: the code ran longer than {limits.timeout_s:g} s"}
    if stopped_for == "memory":
        return {"outcome": "memory", "text": f"MemoryError: more than {limits.total_memory_mb} MB in all processes"}
    if kind == runner.MEMORY:
        return {"outcome": "memory", "text": said}
    if kind == runner.ERROR:
        return {"outcome": "error", "text": said}
    if exit_code < 0:
        return {"outcome": "killed", "text": f"Killed: {_signal_name(-exit_code)}"}
    if exit_code > 0:
        return {"outcome": "error", "text": f"SystemExit: {exit_code}"}
    return {"outcome": "ok", "text": printed.rstrip("\n") if printed else said or "None"}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
