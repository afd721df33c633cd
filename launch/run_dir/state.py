"""Whether a run is in progress, and how it ended if it does not."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

State = Literal["running", "done", "stopped", "failed", "killed"]
LOCK = ".lock"
OVER: Sequence[State] = ("done", "stopped", "failed")  # states in which the summary is of the newest process
ENDINGS = ("stop", "end")  # kinds of events after which no process works in the directory


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a run directory: the kernel frees it with the process."""
    try:
        with open(path / LOCK, "rb", opener=_open_at_once) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES) and (path / LOCK).is_file()
    return False


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe would wait for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def find_state(
    *, locked: bool, summary: Mapping[str, Any], events: Sequence[Mapping[str, Any]], last_step: int | None
) -> State:
    """events: of events.jsonl, oldest first. last_step: of the last row of metrics, None without one.

    A summary is of an earlier process where a later one began without an end, or took steps that it does not count.
    """
    if locked:
        return "running"
    status: State | None = next((state for state in get_args(State) if state == summary.get("status")), None)
    if status is None:
        return "killed"
    kinds = [event.get("kind") for event in events if event.get("kind") in ("begin", *ENDINGS)]
    steps = summary.get("steps")
    is_older = kinds[-1:] == ["begin"] or (
        type(steps) is int and last_step is not None and last_step > steps and not kinds
    )
    return "killed" if is_older else status
