"""What passes between the pool and a zygote: messages (four bytes of length, then JSON), and what an execution came to.

The bytes that an execution left are read by the pool (`tell`), and by the zygote only in the self-test of its start.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from typing import Any

from . import runner

HEADER = 4
READY = b"r"  # the child's first byte: walls up, code not begun, so nothing hostile can have written it
BROKEN = b"b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one execution. Sent by the pool; `weaker` is the mode without namespaces."""

    weaker: bool
    timeout_s: float
    memory_mb: int
    total_memory_mb: int
    output_kb: int
    file_kb: int
    disk_kb: int
    processes: int


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()  # ASCII: lone surrogates survive as escapes
    return len(body).to_bytes(HEADER, "big") + body


def read(fd: int) -> dict[str, Any] | None:
    """The next message, or None at the end of the stream."""
    header = _exactly(fd, HEADER)
    if header is None:
        return None
    body = _exactly(fd, int.from_bytes(header, "big"))
    return None if body is None else dict(json.loads(body))


def write(fd: int, message: dict[str, Any]) -> None:
    data = memoryview(pack(message))
    while data:
        data = data[os.write(fd, data) :]


def _exactly(fd: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(fd, min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """RunReport(output=4, report=1, status=0, stopped_for="", seconds=0.006)"""

    output: int  # bytes that it printed, and that follow this record
    report: int  # bytes of its report, which follow those
    status: int  # as wait() gives it
    stopped_for: str  # "timeout", "memory", "output", or nothing: it ended by itself
    seconds: float


class Broken(Exception):
    """The walls could not be put up."""


def tell(ran: RunReport, output: bytes, report: bytes, limits: Limits) -> tuple[str, str]:
    """(outcome, text) of a run. Raises Broken."""
    if report[:1] != READY:
        if ran.stopped_for == "timeout":
            raise Broken(f"the walls were not up after {limits.timeout_s:g} s")
        raise Broken(report[1:].decode(errors="replace") or f"the child ended with status {ran.status}")
    printed = output[: limits.output_kb * 1024].decode(errors="replace")
    kind, text = report[1:2], report[2:].decode(errors="replace")
    if ran.stopped_for == "output":
        return "output", f"{printed}\n[output cut at {limits.output_kb} KB]"
    ended = _ended_early(ran, kind, text, limits)
    if ended is not None:
        outcome, why = ended
        return outcome, f"{printed.rstrip()}\n{why}" if printed.strip() else why
    return "ok", printed.rstrip("\n") if printed else text or "None"


def _ended_early(ran: RunReport, kind: bytes, text: str, limits: Limits) -> tuple[str, str] | None:
    """(outcome, why), which stands behind what was printed until then."""
    exit_code = os.waitstatus_to_exitcode(ran.status)
    if ran.stopped_for == "timeout":
        return "timeout", f"TimeoutError: the code ran longer than {limits.timeout_s:g} s"
    if ran.stopped_for == "memory":
        return "memory", f"MemoryError: more than {limits.total_memory_mb} MB in all processes"
    if kind == runner.MEMORY:
        return "memory", text
    if kind == runner.ERROR:
        return "error", text
    if exit_code < 0:
        return "killed", f"Killed: {_signal_name(-exit_code)}"
    return ("error", f"SystemExit: {exit_code}") if exit_code > 0 else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
