"""A run that is disturbed: the real command in a process of its own, faults at their times, a new start at its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from launch.chaos.faults import DISK, Fault
from launch.chaos.processes import find_target, signal_all
from launch.run.rundir import METRICS

LOOK_S = 0.05
FILLER = ".filler"
LEFT_BYTES = 2**16  # on a disk that is filled
TURN_S = 0.2  # of a part that is slowed: stopped, then not


@dataclass(slots=True, kw_only=True)
class Done:
    """A fault that was injected, or could not be."""

    fault: Fault
    time: float  # since 1970
    processes: int  # that it hit; 0: the part was not there


@dataclass(slots=True, kw_only=True)
class Disturbed:
    """What happened, for the table."""

    code: int  # of the last process
    began: float  # first row of a stage that plays, since 1970
    ended: float
    done: list[Done] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)  # of each process of the run, since 1970


class Disturber:
    def __init__(
        self, command: Sequence[str], run_dir: Path, output: IO[str], say: Callable[[str], None], *, most_starts: int
    ) -> None:
        """command: of `rlsys`, without --run-dir. output: where the run's own lines go."""
        self._command = [sys.executable, "-m", "launch", *command, "--run-dir", str(run_dir)]
        self._run_dir, self._output, self._say, self._most_starts = run_dir, output, say, most_starts
        self._process: subprocess.Popen[str] | None = None
        self._slowing: list[threading.Thread] = []
        self._over = threading.Event()

    def play(self, faults: Iterable[Fault], stage: str) -> Disturbed:
        """To the end of the run. stage: the first that plays; faults count from its first row."""
        waiting, found = sorted(faults, key=lambda each: each.at_s), Disturbed(code=1, began=0.0, ended=0.0)
        try:
            while len(found.starts) < self._most_starts:
                self._start(found)
                found.code = self._watch(waiting, stage, found)
                if found.code in (0, 2):
                    break
                self._say(f"the run ended with exit code {found.code}: it is started again")
        finally:
            self._over.set()
            self._end()
        found.ended = time.time()
        return found

    def _start(self, found: Disturbed) -> None:
        found.starts.append(time.time())
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def _watch(self, waiting: list[Fault], stage: str, found: Disturbed) -> int:
        assert self._process is not None
        while self._process.poll() is None:
            found.began = found.began or first_row(self._run_dir, stage)
            while waiting and found.began and time.time() >= found.began + waiting[0].at_s:
                self._inject(waiting.pop(0), found)
            time.sleep(LOOK_S)
        return self._process.returncode

    def _inject(self, fault: Fault, found: Disturbed) -> None:
        if fault.target == DISK:
            hit = int(self._later(lambda: self._fill(fault.lasts_s or 0.0)))
        else:
            processes = find_target(self.driver, fault.target)
            number = signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP
            hit = signal_all(processes, number)
            if fault.lasts_s is not None:
                self._later(lambda: self._hold(processes, fault))
        found.done.append(Done(fault=fault, time=time.time(), processes=hit))
        self._say(f"{fault.describe()}: {f'{hit} processes' if hit != 1 else 'one process'}" if hit else
                  f"{fault.describe()}: it is not there at the moment")  # fmt: skip

    @property
    def driver(self) -> int:
        """The process below the one that waits for it, or that one while there is no other."""
        assert self._process is not None
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children():
                return child.pid
        return self._process.pid

    def _later(self, work: Callable[[], None]) -> bool:
        thread = threading.Thread(target=work, daemon=True)
        self._slowing.append(thread)
        thread.start()
        return True

    def _hold(self, processes: list[psutil.Process], fault: Fault) -> None:
        """Stopped for the whole time, or for half of it; then it goes on."""
        assert fault.lasts_s is not None
        until, stopped = time.monotonic() + fault.lasts_s, True
        while time.monotonic() < until and not self._over.wait(TURN_S):
            if fault.kind == "slow":
                stopped = not stopped
                signal_all(processes, signal.SIGSTOP if stopped else signal.SIGCONT)
        signal_all(processes, signal.SIGCONT)

    def _fill(self, lasts_s: float) -> None:
        """The disk of the run directory, but for a little."""
        path = self._run_dir / FILLER
        until = time.monotonic() + lasts_s
        with suppress(OSError), path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(self._run_dir).free - LEFT_BYTES))
        self._over.wait(max(0.0, until - time.monotonic()))
        path.unlink(missing_ok=True)

    def _end(self) -> None:
        for thread in self._slowing:
            thread.join(timeout=5.0)
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=120.0)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def first_row(run_dir: Path, stage: str) -> float:
    """When the first row of a stage was written; 0 where there is none yet."""
    path = run_dir / METRICS
    if not path.is_file():
        return 0.0
    with path.open() as lines:
        for line in lines:
            if f'"stage": "{stage}"' in line and line.endswith("\n"):
                return float(json.loads(line)["time"])
    return 0.0
