"""The process that stays warm: packages loaded, walls up; every execution is a fork of it.

Started by the pool as `python -c ... jail.zygote.main()` with the pool's pipes as stdin and stdout.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from . import execution, frames, landlock, linux, memory, setup, view
from .frames import Limits
from .setup import LayerUnavailable

T = TypeVar("T")

_SELF_TEST = """
import os
held = []
try:
    os.memfd_create("")
    held.append("seccomp")
except PermissionError:
    pass
read_end, write_end = os.pipe()
started = 0
try:
    while started < {processes}:
        if os.fork() == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        started += 1
except (BlockingIOError, PermissionError):
    pass
",".join(held + [str(started)])
"""


def main() -> None:
    requests, answers = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    first = frames.read(requests)
    if first is None:
        return
    try:
        _serve(first, requests, answers)
    except LayerUnavailable as refused:
        frames.write(answers, {"refused": refused.layer, "why": refused.why})


def _serve(first: dict[str, Any], requests: int, answers: int) -> None:
    limits = Limits(**first["limits"])
    _load(first["preload"], first["package_paths"])
    trees = view.python_trees()
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if not limits.weaker:
        setup.enter(trees)
        _become_first_process(requests, answers)
    landlock_abi, no_landlock = _try(landlock.abi)
    children, no_watch = _try(lambda: memory.children(proc, "self"))
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    linux.drop_bounding_set()
    world = execution.World(
        limits=limits,
        trees=tuple(trees),
        proc=proc,
        watch=children is not None,
        landlock_abi=landlock_abi or 0,
        program=setup.system_calls(limits, landlock_abi or 0),
        hang_up_fd=requests,
    )
    buffers = execution.Captured(limits)
    _self_test(world, buffers)
    frames.write(answers, {"layers": _layers(limits, no_landlock, no_watch)})
    while _something_waits(requests):
        ran = execution.execute(requests, world, buffers)
        frames.write(answers, asdict(ran))
        buffers.output.send(answers)
        buffers.report.send(answers)
        buffers.clear()


def _something_waits(requests: int) -> bool:
    """Wait for a request and leave it for the execution to read. False when the pool has gone."""
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll())


def _load(preload: list[str], package_paths: list[str]) -> None:
    """Import what executions find loaded. Third-party packages can be imported here only, not in an execution."""
    sys.path += package_paths
    for name in preload:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise LayerUnavailable(f"preload={name}", str(error)) from error
    del sys.path[-len(package_paths) :]
    if "multiprocessing" in sys.modules:  # what would tidy up shared memory is a program, and none can be started
        tracker: Any = importlib.import_module("multiprocessing.resource_tracker")
        tracker.register = tracker.unregister = lambda name, kind: None
    # The same code prints the same text, in whichever worker it lands.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "sympy" in sys.modules:
        sys.modules["sympy"].core.random.seed(0)


def _become_first_process(requests: int, answers: int) -> None:
    """The rest runs in a child, PID 1 of the new namespace: whatever ends it ends all that it started."""
    child = os.fork()
    if child:
        os.close(requests)
        os.close(answers)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)


def _try(call: Callable[[], T]) -> tuple[T | None, str]:
    """What the kernel answers, or None and why it does not."""
    try:
        return call(), ""
    except OSError as error:
        return None, str(error)


def _self_test(world: execution.World, buffers: execution.Captured) -> None:
    """One execution that tries the filter and the limit on processes. Raises LayerUnavailable."""
    request, write_end = os.pipe()
    frames.write(write_end, {"code": _SELF_TEST.format(processes=world.limits.processes + 1)})
    os.close(write_end)
    try:
        ran = execution.execute(request, world, buffers)
        _, text = frames.tell(ran, buffers.output.read(), buffers.report.read(), world.limits)
    except frames.Broken as broken:
        raise LayerUnavailable("an execution's own walls", str(broken)) from None
    os.close(request)
    buffers.clear()
    allowed = 0 if world.limits.weaker else world.limits.processes - 1
    if text.startswith("'seccomp"):
        raise LayerUnavailable("seccomp", "the filter was installed and did not refuse memfd_create()")
    if text != repr(str(allowed)):
        raise LayerUnavailable("process limit", f"{allowed} processes should start in an execution: {text}")


def _layers(limits: Limits, no_landlock: str, no_watch: str) -> list[tuple[str, bool, str]]:
    """(name, active, remark) in the order in which an execution meets them."""
    spaces = ("user", "mount", "pid", "network", "ipc", "uts")
    weaker = "not used: allow_weaker" if limits.weaker else ""
    rows = [("unprivileged uid", not limits.weaker or os.geteuid() == 0, "" if os.geteuid() else "in each execution")]
    rows += [(f"{name} namespace", not limits.weaker, weaker) for name in spaces]
    rows += [
        ("process limit", True, "no processes, no threads" if limits.weaker else "RLIMIT_NPROC"),
        ("resource limits", True, "address space, CPU, file size, open files"),
        ("no capabilities", True, ""),
        ("seccomp", True, "allow-list"),
        ("landlock", not no_landlock, no_landlock or ("read-only" if limits.weaker else "")),
        ("total memory", not no_watch, no_watch),
    ]
    return rows
