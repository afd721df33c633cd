"""The report that a run makes of itself when it ends: in a process of its own, so that it cannot harm the run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.checks.machine import inside_ray_job
from launch.driver.run.rundir import RunDir

STOPPED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
END_S, STOP_S = 60.0, 10.0  # seconds that it may take; after a stop the caller waits for the process to end
REPORT = (sys.executable, "-m", "launch", "report")


@contextmanager
def report_at_end(directory: RunDir, when: str, say: Callable[[str], None]) -> Iterator[None]:
    """However the run inside ends, once it has left a summary. when: `report` of the configuration."""
    summary = directory.path / "summary.json"
    before = _file_stamp(summary)
    try:
        yield
    finally:
        directory.close()  # a report of a locked directory would be of a run that is still in progress
        if when == "end" and _file_stamp(summary) not in (None, before):  # else it is that of an earlier process
            say(make_report(directory.path))


def make_report(path: Path, command: Sequence[str] = REPORT, limit_s: float | None = None) -> str:
    """Of the run directory `path`. Returns the line to say: where it is, or why there is none.

    A signal ends it at once. `ray job stop` leaves no time for it after the checkpoint.
    """
    stopped, by_hand = _was_stopped(path), f"`rlsys report {path}` makes it"
    if stopped and inside_ray_job():
        return f"no report of a stopped job: {by_hand}"
    limit_s = limit_s or (STOP_S if stopped else END_S)
    with _ended_by_signals() as signals:
        try:
            process = subprocess.Popen(
                [*command, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"no report ({error.strerror}): {by_hand}"
        with process:
            signals.end(process)
            try:
                _, wrong = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return f"no report within {limit_s:g} s: {by_hand}"
    if process.returncode == 0:
        return f"report: {path / 'report.html'}"
    if signals.came or process.returncode in STOPPED:
        return f"no report (it was stopped): {by_hand}"
    stderr_lines = wrong.decode("utf-8", "replace").strip().splitlines()
    return f"no report ({stderr_lines[-1] if stderr_lines else f'exit code {process.returncode}'}): {by_hand}"


class _Signals:
    """Ctrl-C and SIGTERM, of which each ends the process, also where it starts only then."""

    def __init__(self) -> None:
        self.came = False
        self._process: subprocess.Popen[bytes] | None = None

    def take(self, *_: object) -> None:
        self.came = True
        if self._process is not None:
            self._process.kill()

    def end(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if self.came:
            process.kill()


@contextmanager
def _ended_by_signals() -> Iterator[_Signals]:
    """While a run that is tidying up ignores both."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    signals = _Signals()
    try:
        for signum in before:
            signal.signal(signum, signals.take)
        yield signals
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _file_stamp(file: Path) -> tuple[int, int] | None:
    """Inode and time of the last write, which every write of the file changes."""
    with suppress(OSError):
        stat = file.stat()
        return stat.st_ino, stat.st_mtime_ns
    return None


def _was_stopped(path: Path) -> bool:
    with suppress(OSError, ValueError):
        summary = json.loads((path / "summary.json").read_bytes())
        return isinstance(summary, dict) and summary.get("status") == "stopped"
    return False
