"""Getting into the jail, layer by layer: first the process (`enter`), then each execution's child (`confine`)."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from . import landlock, linux, seccomp, view
from .frames import Limits

NOBODY = 65534  # known everywhere, also where only the first 65536 ids are mapped
_OPEN_FILES = 64


class LayerUnavailable(Exception):
    """The host does not give a layer: its name, and the kernel's words."""

    def __init__(self, layer: str, why: str) -> None:
        super().__init__(layer, why)
        self.layer = layer
        self.why = why


@contextmanager
def layer(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LayerUnavailable(name, str(error)) from error


def enter(trees: Sequence[str]) -> None:
    """Namespaces and the view of files, for this process and, for processes, its children.

    As root the view is built first, because Python may lie where only root may look; then root is given up, so that
    the limit on processes binds and an escape from the namespaces has the user `nobody`. Raises LayerUnavailable.
    """
    own_entry = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    as_root = os.geteuid() == 0 and _may_mount()
    if as_root:
        with layer("mount namespace"):
            view.enter(trees)
    with layer("unprivileged uid"):
        give_up_root()
    outer_uid, outer_gid = os.getuid(), os.getgid()
    with layer("user namespace"):
        linux.unshare(linux.CLONE_NEWUSER)
        own_maps = (("uid_map", f"{NOBODY} {outer_uid} 1"), ("gid_map", f"{NOBODY} {outer_gid} 1"))
        for name, text in (("setgroups", "deny"), *own_maps):
            entry = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=own_entry)
            os.write(entry, text.encode())
            os.close(entry)
        os.close(own_entry)
    for name, flag in _NAMESPACES.items():
        with layer(name):
            linux.unshare(flag)
    linux.set_host_name("sandbox")
    if not as_root:
        with layer("mount namespace"):
            view.enter(trees)


def give_up_root() -> None:
    """Become the user `nobody` if this process is root; otherwise keep its user."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # or /proc/self/uid_map belongs to root


def system_calls(limits: Limits, landlock_abi: int) -> bytes:
    """The filter of every execution. Raises LayerUnavailable."""
    files: seccomp.Files = "private"
    if limits.weaker:
        files = "readable" if landlock_abi else "none"
    try:
        return seccomp.build(platform.machine(), files=files, processes=not limits.weaker)
    except ValueError:
        raise LayerUnavailable("seccomp", f"no system-call numbers for {platform.machine()}") from None


def confine(limits: Limits, base_bytes: int, readable: Sequence[str], landlock_abi: int, program: bytes) -> None:
    """What the child does before it runs anything. `base_bytes`: its address space at birth. Raises OSError."""
    if limits.weaker:
        linux.prctl(linux.PR_SET_PDEATHSIG, 9)
        give_up_root()
        linux.prctl(linux.PR_SET_PDEATHSIG, 9)  # a change of uid clears it
        os.chdir("/")
    else:
        linux.unshare(linux.CLONE_NEWNS)
        view.private_tmp(limits.disk_kb)
    limit_resources(limits, base_bytes)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    if landlock_abi:
        if limits.weaker:
            openable = [path for path in readable if os.access(path, os.R_OK | os.X_OK)]
            landlock.restrict(landlock_abi, openable, [])
        else:
            landlock.restrict(landlock_abi, ["/"], ["/tmp", "/dev"])
    seccomp.install(program)


def cpu_seconds(limits: Limits) -> int:
    """The limit of one process; the deadline comes first unless it uses several cores."""
    return int(limits.timeout_s) + 2


_NAMESPACES = {
    "mount namespace": linux.CLONE_NEWNS,
    "pid namespace": linux.CLONE_NEWPID,
    "network namespace": linux.CLONE_NEWNET,
    "ipc namespace": linux.CLONE_NEWIPC,
    "uts namespace": linux.CLONE_NEWUTS,
}


def _may_mount() -> bool:
    try:
        linux.unshare(linux.CLONE_NEWNS)
    except PermissionError:  # root of a container: try as any other user would
        return False
    return True


def limit_resources(limits: Limits, base_bytes: int) -> None:
    values = {
        resource.RLIMIT_AS: base_bytes + limits.memory_mb * 2**20,
        resource.RLIMIT_CPU: cpu_seconds(limits),
        resource.RLIMIT_FSIZE: limits.file_kb * 1024,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if not limits.weaker:
        values[resource.RLIMIT_NPROC] = limits.processes + 2  # the launcher and the zygote have the same uid
    for limit, value in values.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
