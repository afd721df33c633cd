"""Nothing of a killed process stays: children die with their parent, and what lies in a folder names its owner.

vLLM's EngineCore does not notice that its parent is gone, and would keep its memory, or its GPU; nor does a process of
environments that one of them blocks. The kernel ends both (`die_with`).

A killed process cannot unlink its semaphores in /dev/shm, and the name that Python gives says nothing of whose they
are; vLLM itself unlinks none of its sockets. Both bear the tag of the run's owner: a stopped engine removes its own,
what a killed one has left goes with its run, or with the machine's next.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "RLSYS_OWNER"  # of the environment of every process of a run
SHARED = Path("/dev/shm")
SEMAPHORES = "sem.rlsys-"  # the system puts "sem." before a name
SOCKETS, OWNER = "rlsys-sockets-", "owner"
LONGEST_OWNER = 4096  # bytes of a tag
BASE = "VLLM_RPC_BASE_PATH"  # read by vLLM when an engine starts
LONGEST = 107  # bytes of a socket's path: the kernel takes no more
LONGEST_NAME = len(f"/{SOCKETS}12345678/") + 36  # of the folder, and the UUID that vLLM appends


def machine() -> str:
    """Where a pid means something: this process namespace. Tags of other machines are not ours to judge."""
    return f"{socket.gethostname()}.{os.stat('/proc/self/ns/pid').st_ino}"


def tag_own() -> None:
    """Name the semaphores of this process, and of those that it spawns from now on, after the run's owner."""
    owner = os.environ.get(VARIABLE)
    if owner:
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # Python offers no other way
        config["semprefix"] = f"/{SEMAPHORES.removeprefix('sem.')}{owner}"  # children get a copy


def find_left_behind(is_gone: Callable[[str], bool]) -> list[Path]:
    """The files of semaphores whose owner `is_gone`."""
    paths = SHARED.glob(f"{SEMAPHORES}*")
    return [path for path in paths if is_gone(path.name.removeprefix(SEMAPHORES).rpartition("-")[0])]


def sockets_root() -> Path:
    """The folder for temporary files, where a socket's path fits into it."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) + LONGEST_NAME <= LONGEST else "/tmp")


def make_sockets() -> Path | None:
    """A folder for the next engine of this process, for its user alone. None where a person has named one."""
    if BASE in os.environ and not Path(os.environ[BASE]).name.startswith(SOCKETS):
        return None
    folder = Path(tempfile.mkdtemp(prefix=SOCKETS, dir=sockets_root()))
    (folder / OWNER).write_text(os.environ.get(VARIABLE, ""))
    os.environ[BASE] = str(folder)
    return folder


def remove_left_behind(is_gone: Callable[[str], bool]) -> None:
    """The semaphores whose owner `is_gone`, and the folders of its engines."""
    for path in find_left_behind(is_gone):
        path.unlink(missing_ok=True)
    for folder in sockets_root().glob(f"{SOCKETS}*"):
        with contextlib.suppress(OSError, ValueError):  # of another user, gone meanwhile, or none of ours
            if is_gone(_owner(folder)):
                shutil.rmtree(folder, ignore_errors=True)


def _owner(folder: Path) -> str:
    """Everybody may make such a folder: nothing is followed, waited for or read to an end that never comes."""
    file = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        whose, kind = {folder.lstat().st_uid, os.fstat(file).st_uid}, os.fstat(file).st_mode
        if whose != {os.geteuid()} or not stat.S_ISREG(kind):
            raise ValueError(f"{folder}: not ours")
        return os.read(file, LONGEST_OWNER).decode()
    finally:
        os.close(file)


def die_with(parent: int) -> None:
    """Bind this process's life to `parent`, its direct one: the kernel sends SIGKILL when the spawning thread ends."""
    pr_set_pdeathsig = 1
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() != parent:  # it died before the line above: no signal will come
        os.kill(os.getpid(), signal.SIGKILL)


def unname(mark: str | None) -> None:
    """Take the names off the shared memory that begins with `mark`, once all who share it have opened it.

    It stays with them, and the kernel frees it when the last of them ends, however it ends: a killed process cannot.
    """
    for path in SHARED.glob(f"{mark}-*") if mark else ():
        path.unlink(missing_ok=True)
