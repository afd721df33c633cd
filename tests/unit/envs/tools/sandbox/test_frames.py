"""What the pool makes of the bytes that an execution left."""

from __future__ import annotations

from typing import Any

import pytest

from envs.tools.sandbox.jail.frames import Broken, Limits, RunReport, tell

LIMITS = Limits(
    weaker=False,
    timeout_s=5.0,
    memory_mb=64,
    total_memory_mb=128,
    output_kb=1,
    file_kb=1,
    disk_kb=1,
    processes=4,
)


def told(output: bytes, report: bytes, **ended: Any) -> tuple[str, str]:
    how: dict[str, Any] = {"status": 0, "stopped_for": "", "seconds": 0.1} | ended
    return tell(RunReport(output=len(output), report=len(report), **how), output, report, LIMITS)


@pytest.mark.parametrize(
    ("output", "report", "ended", "expected"),
    [
        (b"4\n", b"rv", {}, ("ok", "4")),
        (b"", b"rv7", {}, ("ok", "7")),
        (b"4\n", b"rv7", {}, ("ok", "4")),  # what is printed wins
        (b"", b"rv", {}, ("ok", "None")),
        (b"4\n", b"reZeroDivisionError: x", {}, ("error", "4\nZeroDivisionError: x")),  # what came before it is shown
        (b" \n", b"reZeroDivisionError: x", {}, ("error", "ZeroDivisionError: x")),
        (b"", b"rmMemoryError", {}, ("memory", "MemoryError")),
        (b"", b"r", {"status": 11}, ("killed", "Killed: SIGSEGV")),
        (b"", b"r", {"status": 60}, ("killed", "Killed: signal 60")),
        (b"", b"r", {"status": 3 << 8}, ("error", "SystemExit: 3")),
        (
            b"4",
            b"r",
            {"status": 9, "stopped_for": "timeout"},
            ("timeout", "4\nTimeoutError: the code ran longer than 5 s"),
        ),
        (b"", b"r", {"stopped_for": "memory"}, ("memory", "MemoryError: more than 128 MB in all processes")),
        (b"x" * 1025, b"r", {"stopped_for": "output"}, ("output", "x" * 1024 + "\n[output cut at 1 KB]")),
        (b"\xff\xfeok", b"rv", {}, ("ok", "\ufffd\ufffdok")),
        (b"", b"r?forged", {}, ("ok", "forged")),  # by the code: it says nothing that it could not have printed
    ],
)
def test_the_text_that_a_model_reads(
    output: bytes, report: bytes, ended: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert told(output, report, **ended) == expected


@pytest.mark.parametrize(
    ("report", "ended", "why"),
    [
        (b"bOSError(1)", {"status": 1 << 8}, r"OSError\(1\)"),
        (b"", {"status": 9}, "the child ended with status 9"),
        (b"", {"stopped_for": "timeout"}, "the walls were not up after 5 s"),
    ],
)
def test_walls_that_were_not_up_are_no_result(report: bytes, ended: dict[str, Any], why: str) -> None:
    with pytest.raises(Broken, match=why):
        told(b"", report, **ended)
