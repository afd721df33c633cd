"""Running the real command as a user does: another process, its output, its exit code, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from launch.driver.run import cleanup
from rlsys.system import memory, orphans
from tests.makers.made import records

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 300.0  # from a signal to the end
DEADLINE_S = 1200  # three times what the longest takes on two cores of its own: those of a shared machine are slower
TIDY_S = 60  # in which a run ends what a killed one has left
WORKER = "PYTEST_XDIST_WORKER"  # the name of the process that pytest handed this test to


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    output: str


def rlsys(
    *argv: str,
    send: signal.Signals | None = None,
    when: Callable[[], bool] = lambda: False,
    marker: str | None = None,
    module: str = "launch",
    deadline_s: float = DEADLINE_S,
) -> Result:
    """Run `python -m MODULE ARGV`. With `send`, deliver that signal once `when()` holds or `marker` was printed.

    A run makes no report, unless ARGV says when.
    """
    if argv[:1] == ("train",) and not any(word.startswith("report=") for word in argv):
        argv = (*argv, "report=none")
    with tempfile.NamedTemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def due() -> bool:
            return when() or (marker is not None and marker in Path(output.name).read_text())

        def watch() -> None:
            while process.poll() is None and not due():
                time.sleep(0.05)
            if process.poll() is None and send is not None:
                process.send_signal(send)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S)
                if process.poll() is None:  # it hangs, and the exit code says so
                    process.kill()

        watcher = threading.Thread(target=watch)
        if send is not None:
            watcher.start()
        try:
            process.wait(timeout=deadline_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if send is not None:
            watcher.join()
        return Result(process.returncode, Path(output.name).read_text())


def steps_of(run: Path, stage: str) -> int:
    """How many steps of a stage stand in metrics.jsonl by now."""
    path = run / "metrics.jsonl"
    return path.read_text().count(f'"stage": "{stage}"') if path.exists() else 0


def rows(run: Path) -> list[dict[str, Any]]:
    return records(run / "metrics.jsonl")


def summary(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return content


def trajectories(run: Path, pattern: str = "step-*.jsonl") -> list[dict[str, Any]]:
    files: Sequence[Path] = sorted((run / "trajectories").glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def left_behind() -> list[str]:
    """Processes, weight folders and semaphores of runs whose driver is gone. A run beside this one keeps its own.

    Tests of another process may just have killed a driver: its processes are told by what they inherit, and what lies
    in memory, which tells nobody's name, is gone as soon as its next run has begun. Nobody else's is waited for.
    """
    orphans = [process for process in cleanup.find_owned() if _begun_here(process)]
    deadline = time.monotonic() + (TIDY_S if WORKER in os.environ else 0.0)
    while (places := _places()) and time.monotonic() < deadline:
        time.sleep(0.5)  # there is no event of another driver's to wait for
    return [f"{process.pid} {process.name()}" for process in orphans] + places


def _begun_here(process: psutil.Process) -> bool:
    try:
        same_worker = process.environ().get(WORKER) == os.environ.get(WORKER)
        return same_worker and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _places() -> list[str]:
    return [
        str(path) for path in memory.find_abandoned(Path("/dev/shm")) + orphans.find_left_behind(cleanup.is_dead_owner)
    ]
