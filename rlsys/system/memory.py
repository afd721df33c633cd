"""Folders in a node's memory, each of one run: it belongs to the process that holds the kernel's lock on it.

The kernel releases a lock when its holder dies, however that happens, so a folder whose lock is free has no owner and
any process may remove it. A separate process does so soon after the holder is gone: this file, run as a script. It
imports nothing of ours and nothing heavy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "rlsys-versions-"
GRACE_S = 15.0  # for another process to take over what one that died has held
LOCK_WAIT_S = 10.0  # a holder makes or removes a folder meanwhile
POLL_S = 0.1  # of LOCK_WAIT_S and GRACE_S
WAYS = "enlarge it (docker run --shm-size), or set cluster.weights_dir to a folder on a fast local disk of every node"


def memory_root(folder: str | Path | None = None) -> Path:
    """`cluster.weights_dir`, else a tmpfs where the system has one: engines map the weights from memory."""
    shared = Path("/dev/shm")
    return Path(folder or (shared if os.access(shared, os.W_OK) else tempfile.gettempdir()))


def describe_no_room(root: Path, size: int) -> str:
    """What is wrong with `root` on this node as the place of `size` bytes; empty where nothing is.

    Pure of the run: whatever runs on a node may ask.
    """
    try:
        free = shutil.disk_usage(root).free
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    except BlockingIOError:
        pass  # another process has it: locks work there
    except OSError as error:
        return f"{root}: versions of the weights cannot lie there ({error}); set cluster.weights_dir"
    if free < size:
        return (
            f"{root} has {_size(free)} free, two versions of the weights (and Ray's object store, where it lies there) "
            f"take {_size(size)}; {WAYS}"
        )
    return ""


def describe_full(folder: Path, size: int) -> str:
    """Why so many bytes of a version cannot be written there; empty where it is not for lack of room."""
    free = shutil.disk_usage(folder).free
    return f"{folder} has {_size(free)} free, {_size(size)} of the weights are to go there; {WAYS}" * (free < size)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def lock(folder: Path) -> int:
    """Make a folder and hold its lock. Returns what holds it. Raises TimeoutError where another process does."""
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            descriptor = _open_locked(folder)
            if descriptor is not None:
                return descriptor
        if time.monotonic() > until:
            raise TimeoutError(f"{folder}: another process has held its lock for {LOCK_WAIT_S:g} s")
        time.sleep(POLL_S)


def _open_locked(folder: Path) -> int | None:
    """Its lock, unless another process has it or removes the folder at this moment."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == os.stat(folder).st_ino:
            return descriptor
    except BlockingIOError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


@contextlib.contextmanager
def _try_lock(folder: Path) -> Iterator[bool]:
    """Whether the lock was free, and then it is held inside."""
    descriptor = None
    with contextlib.suppress(OSError):  # gone meanwhile, or not ours
        descriptor = _open_locked(folder)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def find_abandoned(root: Path) -> list[Path]:
    """Folders that no process holds."""
    folders = []
    for folder in root.glob(f"{PREFIX}*"):
        with _try_lock(folder) as free:
            folders += [folder] if free else []
    return folders


def sweep(root: Path) -> None:
    """Remove the folders that no process holds."""
    for folder in find_abandoned(root):
        remove_abandoned(folder)


def remove_abandoned(folder: Path) -> None:
    with _try_lock(folder) as free:
        if free:
            shutil.rmtree(folder, ignore_errors=True)


def guard(folder: Path) -> int:
    """Have the folder removed when this process is gone and no other has locked it since.

    Returns the end of a pipe that has to stay open as long. The process that waits at the other end is no child of this
    one: Ray ends the children of its workers.
    """
    read_end, write_end = os.pipe()
    command = [sys.executable, "-I", "-S", __file__, str(folder), str(GRACE_S)]
    try:
        subprocess.run(command, stdin=read_end, start_new_session=True, check=True)
    finally:
        os.close(read_end)
    return write_end


def main(folder: Path, grace_s: float) -> None:
    """A moment after the other end of standard input is closed, or at SIGTERM: remove what no process has locked."""
    if os.fork():
        return

    def now(*_: object) -> None:
        remove_abandoned(folder)
        os._exit(0)

    signal.signal(signal.SIGTERM, now)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # who reads what the holder says would wait for this process too
    os.dup2(silent, 2)
    while os.read(0, 4096):
        pass
    until = time.monotonic() + grace_s
    while folder.exists() and time.monotonic() < until:
        time.sleep(POLL_S)
    remove_abandoned(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
