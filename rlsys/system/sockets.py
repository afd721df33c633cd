"""vLLM's sockets lie in a folder of their engine that names the run's owner, for vLLM itself unlinks none of them.

An engine that is stopped removes its own. What a killed one has left goes with its run, or with the machine's next.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from rlsys.system.semaphores import VARIABLE

PREFIX, OWNER = "rlsys-sockets-", "owner"
LONGEST_OWNER = 4096  # bytes of a tag
BASE = "VLLM_RPC_BASE_PATH"  # read by vLLM when an engine starts
LONGEST = 107  # bytes of a socket's path: the kernel takes no more
NAME = len(f"/{PREFIX}12345678/") + 36  # of the folder, and the UUID that vLLM appends


def root() -> Path:
    """The folder for temporary files, where a socket's path fits into it."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) + NAME <= LONGEST else "/tmp")


def make() -> Path | None:
    """A folder for the next engine of this process, for its user alone. None where a person has named one."""
    if BASE in os.environ and not Path(os.environ[BASE]).name.startswith(PREFIX):
        return None
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root()))
    (folder / OWNER).write_text(os.environ.get(VARIABLE, ""))
    os.environ[BASE] = str(folder)
    return folder


def remove(gone: Callable[[str], bool]) -> None:
    """The folders of engines whose owner is `gone`."""
    for folder in root().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):  # of another user, gone meanwhile, or none of ours
            if gone(_owner(folder)):
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
