"""What an execution came to, from the bytes that it left. The pool reads them; the zygote never does."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from . import runner
from .frames import Limits

READY = b"r"  # the child's first byte: walls up, code not begun, so nothing hostile can have written it
BROKEN = b"b"


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
    kind, said = report[1:2], report[2:].decode(errors="replace")
    exit_code = os.waitstatus_to_exitcode(ran.status)
    if ran.stopped_for == "output":
        return "output", f"{printed}\n[output cut at {limits.output_kb} KB]"
    if ran.stopped_for == "timeout":
        return "timeout", f"TimeoutError: the code ran longer than {limits.timeout_s:g} s"
    if ran.stopped_for == "memory":
        return "memory", f"MemoryError: more than {limits.total_memory_mb} MB in all processes"
    if kind == runner.MEMORY:
        return "memory", said
    if kind == runner.ERROR:
        return "error", said
    if exit_code < 0:
        return "killed", f"Killed: {_signal_name(-exit_code)}"
    if exit_code > 0:
        return "error", f"SystemExit: {exit_code}"
    return "ok", printed.rstrip("\n") if printed else said or "None"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
