"""A process of an agent's: what ends with it, what it may take, and what it holds."""

import ctypes
import math
import os
import re
import resource
import signal
from contextlib import suppress
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
PAGE = os.sysconf("SC_PAGE_SIZE")
NPROC_SINCE = (5, 14)  # the kernel that counts a user's processes for each namespace
PIDS_SINCE, PIDS_LEAST = (6, 14), 301  # the kernel that has it, and the smallest limit that it takes

libc = ctypes.CDLL(None, use_errno=True)


def descendants(pid: int, most: float = math.inf) -> list[int]:
    """Of a process, its children first; no more are looked for once there are `most`."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < most:
        parent = waiting.pop()
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:
                    children = list(map(int, file.read().split()))
                waiting += children
                found += children
    return found


def resident_mb(pid: int) -> float:
    """Without pages of files; those that it shares with the keeper count."""
    total = 0
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1])
    return total / 1024


def die_with(parent: int) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def enter_namespace(job: dict[str, Any]) -> None:
    """The rest runs in a child of the first process of a new namespace, with which all that is in it ends. This process
    waits for that one, and that one for the agent; each passes on how it ended."""
    alone = job["alone"]
    if alone:
        unshare()
    pass_on_end(os.fork())
    if alone:
        limit_pids(job["processes"])
        if libc.unshare(CLONE_NEWNS) == 0:  # and with numbers of processes that are its own, where that is allowed
            libc.mount(b"proc", b"/proc", b"proc", 0, None)
        pass_on_end(os.fork())  # the kernel spares the first one the signals that end others
    with open("/proc/self/statm", encoding="ascii") as statm:
        most = int(statm.read().split()[5]) * PAGE + (2 * job["memory_mb"] << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # of each process; `watch` sees what they hold together
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (job["files"], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if alone and kernel() >= NPROC_SINCE:  # else those of all its user's processes would be counted
        most = job["processes"] + 1
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def limit_pids(processes: int) -> None:
    """Of this namespace. The limit of a user's processes does not bind root; this one does, where the kernel has one
    for each namespace: an older one would set the machine's."""
    if kernel() >= PIDS_SINCE:
        with suppress(OSError), open("/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
            file.write(str(PIDS_LEAST + processes))


def kernel() -> tuple[int, ...]:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(map(int, release.groups())) if release is not None else (0, 0)


def unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "no namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def can_unshare() -> bool:
    """Some systems let it be done and refuse what follows."""
    child = os.fork()
    if not child:
        with suppress(OSError):
            unshare()
            inside = os.fork()
            os._exit(0 if not inside else os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1]))
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def come_first(nice: int) -> None:
    """Root is not bound by the limit of processes: what multiplies must not outrun the one that watches."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(nice))


def pass_on_end(child: int) -> None:
    """In the parent: end as it does. In the child: end with the parent."""
    if not child:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    libc.prctl(PR_SET_DUMPABLE, 0)  # the agent is of the same user, and could write into it
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(128 - code if code < 0 else code)
