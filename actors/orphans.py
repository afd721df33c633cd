"""No child outlives a rollout worker that was killed with SIGKILL.

vLLM's EngineCore does not notice that its parent is gone, and would keep its memory, or its GPU; nor does a process of
environments that one of them blocks.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

SHARED = Path("/dev/shm")


def die_with(parent: int) -> None:
    """Bind this process's life to `parent`, its direct one: the kernel sends SIGKILL when the spawning thread ends."""
    pr_set_pdeathsig = 1
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() != parent:  # it died before the line above: no signal will come
        os.kill(os.getpid(), signal.SIGKILL)


def unname(mark: str | None) -> None:
    """Take the names off the shared memory that begins with `mark`, once all who share it have opened it.

    It stays with them, and the kernel frees it with the last of them, however they end: whoever is killed cannot.
    """
    for path in SHARED.glob(f"{mark}-*") if mark else ():
        path.unlink(missing_ok=True)
