"""A run that is disturbed: the real command in a process of its own, faults at their times, a new start at its end."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, get_args

import psutil

from launch.tools.chaos.faults import DRIVER, Fault, Unit
from launch.tools.chaos.machines import Machines
from launch.tools.chaos.rows import Rows
from rlsys.system.parts import owner_of

CUT_S = 120.0  # after which Ray has given up a node that is cut off for good
LOOK_S = 0.02  # the smallest checkpoints are written in a fifth of a second
Phase = Literal["start", "checkpoint", ""]


@dataclass(slots=True, kw_only=True)
class Done:
    """A fault that was injected, or could not be."""

    fault: Fault
    time: float  # since 1970
    processes: int  # that it hit, or nodes, or disks; 0: the part was not there
    during: Phase = ""  # before the first row since a start of the run; while a checkpoint is written


@dataclass(slots=True, kw_only=True)
class Disturbed:
    """What happened, for the table."""

    code: int  # of the last process
    began: float  # first row of a stage that plays, since 1970
    ended: float
    done: list[Done] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)  # of each process of the run, since 1970
    failed_alone: bool = False  # its newest process, without a fault and before it got any further


class Disturber:
    def __init__(
        self,
        command: Sequence[str],
        run_dir: Path,
        output: IO[str],
        say: Callable[[str], None],
        machines: Machines,
        *,
        most_starts: int,
    ) -> None:
        """command: of `rlsys`, without --run-dir. output: where the run's own lines go."""
        self._command = [sys.executable, "-m", "launch", *command, "--run-dir", str(run_dir)]
        self._run_dir, self._output, self._say, self._most_starts = run_dir, output, say, most_starts
        self._machines = machines
        self._process: subprocess.Popen[str] | None = None

    def play(self, faults: Iterable[Fault], random_faults: Iterable[Fault], stage: str, most_hits: float) -> Disturbed:
        """To the end of the run. random_faults: until `most_hits` hit something. stage: the first that plays."""
        rows, record = Rows(self._run_dir, stage), Disturbed(code=1, began=0.0, ended=0.0)
        faults, at = list(faults), operator.attrgetter("at")
        by_unit = [sorted((fault for fault in faults if fault.unit == unit), key=at) for unit in get_args(Unit)]
        queues = [*map(_Queue, by_unit), _Queue(random_faults, most_hits)]
        try:
            while len(record.starts) < self._most_starts:
                self._start(record)
                record.code = self._watch(queues, rows, record)
                rows.leave()
                if record.code in (0, 2) and not was_stopped(record):
                    break
                record.failed_alone = has_failed_alone(record, rows.newest)
                if record.failed_alone:
                    break
                self._say(f"the run ended with exit code {record.code}: it is started again")
        finally:
            try:
                self._machines.end()
            finally:
                self._end()
        record.ended = time.time()
        return record

    def _start(self, record: Disturbed) -> None:
        record.starts.append(time.time())
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def _watch(self, queues: Sequence[_Queue], rows: Rows, record: Disturbed) -> int:
        assert self._process is not None
        while self._process.poll() is None:
            rows.look()
            record.began = rows.began
            for queue in queues:
                if queue.next is not None and rows.is_due(queue.next, time.time()):
                    queue.count(self._inject(queue.next, rows, record))
            time.sleep(LOOK_S)
        rows.look()  # what was written since the last time
        record.began = rows.began
        return self._process.returncode

    def _inject(self, fault: Fault, rows: Rows, record: Disturbed) -> int:
        when, during = time.time(), self._phase(rows, record)
        hit = self._machines.disturb(owner_of(self.driver), fault, self._run_dir)
        record.done.append(Done(fault=fault, time=when, processes=hit, during=during))
        self._say(fault.describe() + ("" if hit else ": it is not there at the moment"))
        return hit

    def _phase(self, rows: Rows, record: Disturbed) -> Phase:
        if rows.last < record.starts[-1]:
            return "start"
        return "checkpoint" if rows.saving else ""

    @property
    def driver(self) -> int:
        """The process below the one that waits for it, or that one while there is no other."""
        assert self._process is not None
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children():
                return int(child.pid)
        return self._process.pid

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=120.0)  # a stop of the small runs that are disturbed takes seconds
            finally:  # also where a second Ctrl-C breaks the wait off
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def was_stopped(record: Disturbed) -> bool:
    """Whether the newest process was asked to stop: it has ended in order, and the run is not done."""
    return any(
        hit.fault.kind == "stop" and hit.fault.target == DRIVER and hit.processes and hit.time >= record.starts[-1]
        for hit in record.done
    )


def has_failed_alone(record: Disturbed, newest: float) -> bool:
    """Whether the newest process failed by itself: it met no fault, nor what is left of one, and wrote no row, so that
    another start would end in the same way. newest: when a row was last written."""
    started = record.starts[-1]
    disturbed = any(hit.processes and hit.time + _lasts_s(hit.fault) >= started for hit in record.done)
    return record.code == 1 and not disturbed and newest < started


def _lasts_s(fault: Fault) -> float:
    if fault.lasts_s is not None:
        return fault.lasts_s
    return CUT_S if fault.kind == "cut" else 0.0


class _Queue:
    """Faults in the order of their times, drawn one by one."""

    def __init__(self, faults: Iterable[Fault], most_hits: float = float("inf")) -> None:
        self._faults, self._left = iter(faults), most_hits
        self.next = next(self._faults, None)

    def count(self, hit: int) -> None:
        """The next one takes its place, if there is to be one."""
        self._left -= hit > 0
        self.next = next(self._faults, None) if self._left > 0 else None
