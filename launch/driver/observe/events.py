"""`events.jsonl`: what happened in a run besides its steps, one JSON object a line, appended as it happens.

    {"time": 1790131053.2, "step": 12, "stage": "rl", "kind": "lost", "who": "rollout:0", "text": ".."}

A health row names its `sign`. Rows of steps that a resumed run takes again stay: what broke did break.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from rlsys.errors import describe_error
from rlsys.system import incidents
from rlsys.system.incidents import ATTRIBUTE, Incident
from rlsys.untrusted import visible_lines

log = logging.getLogger("rlsys.events")
OURS = "rlsys"  # the logger above all of ours
Kind = Literal["begin", "stage", "evaluation", "checkpoint", "health", "stop", "end"] | incidents.Kind


class Events:
    """The only writer. A fault boundary: a full disk costs rows and one line of the log, and never the run."""

    def __init__(self, path: Path, where: Callable[[], tuple[int, str]] = lambda: (0, "")) -> None:
        """Open `path` and cut off a last row that a crash tore. where: the run's step and stage."""
        self.path, self._where = path, where
        self._lock = threading.Lock()
        self._broken = False
        self._file: int | None = None
        self._handler = _Handler(self)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            _cut_torn_row(self._file)
        except OSError as error:
            self._failed(error)

    def listen(self) -> None:
        """From now on incidents that are logged in this process are rows too."""
        logging.getLogger(OURS).addHandler(self._handler)

    def add(self, kind: Kind, text: str, *, who: str = "", sign: str = "", **numbers: float | None) -> None:
        self._add(kind, who, text, numbers, sign)

    def add_incident(self, incident: Incident) -> None:
        numbers = {name: getattr(incident, name) for name in ("detected_s", "recovered_s", "groups")}
        self._add(incident.kind, incident.who, incident.text, numbers)

    def close(self) -> None:
        logging.getLogger(OURS).removeHandler(self._handler)
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def _add(self, kind: str, who: str, text: str, numbers: dict[str, float | None], sign: str = "") -> None:
        step, stage = self._where()
        row: dict[str, Any] = {"time": round(time.time(), 3), "step": step, "stage": stage, "kind": kind, "who": who}
        row |= {"sign": sign} if sign else {}
        row["text"] = visible_lines(text)
        row |= {name: round(value, 3) for name, value in numbers.items() if value is not None}
        line = (json.dumps(row) + "\n").encode()
        with self._lock:
            if self._file is None:
                return
            try:
                _append(self._file, line)
            except OSError as error:
                self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            log.warning("%s lacks rows: %s", self.path, describe_error(error))


class _Handler(logging.Handler):
    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        incident = getattr(record, ATTRIBUTE, None)
        if isinstance(incident, Incident):
            self._events.add_incident(incident)


def _append(file: int, line: bytes) -> None:
    """The whole line or nothing of it."""
    before, written = os.fstat(file).st_size, 0
    try:
        written = os.write(file, line)
    finally:
        if written < len(line):
            os.ftruncate(file, before)
    if written < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut_torn_row(file: int) -> None:
    size = os.fstat(file).st_size
    end = size
    while end:
        start = max(0, end - 65536)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
