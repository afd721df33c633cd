"""The driver's side: it notices what an incident is, opens a folder and starts the collector. In a thread of its own.

A fault boundary. The loop passes a line to it and continues; the collector is a process with a deadline, of low
priority; what goes wrong here is one line of the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from launch.checks.shareable import Hider, known_secrets
from launch.driver.incidents.collect import COLLECT_S, Request
from launch.driver.incidents.coroutines import describe_tasks
from launch.driver.incidents.facts import PARAGRAPH, Facts, read_facts, write_facts
from launch.driver.incidents.folder import make_folder
from launch.driver.incidents.gate import RECOVERED, Gate, Trigger
from launch.driver.incidents.paragraph import describe
from launch.driver.incidents.processes import PartProcess, environments, list_parts
from launch.driver.observe.phases import PhaseWatch
from rlsys.config.output import IncidentsConfig
from rlsys.errors import describe_error
from rlsys.system import stack_signal
from rlsys.system.incidents import ATTRIBUTE, Incident, warn
from rlsys.system.parts import owner_of
from rlsys.untrusted import visible_lines

log = logging.getLogger("rlsys.incidents")
OURS = "rlsys"  # the logger above all of ours
LOOK_S = 1.0  # between two looks at the phase
REFRESH_S = 20.0  # between two looks at the processes of the parts
FAILURE_S = 2 * COLLECT_S + 5.0  # that the end of a failed run waits for its folder, and for one before it
END_S = 3.0  # that the end of a run waits for one that is being collected
MOST_ALSO = 50  # lines of one incident
MOST_LINES = 400  # of the driver's log
COMMAND = (sys.executable, "-m", "launch.driver.incidents.collect")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A trigger whose caller waits for the folder."""

    trigger: Trigger
    answer: queue.SimpleQueue[Path | None]


class IncidentKeeper:
    def __init__(
        self,
        run: Path,
        config: IncidentsConfig,
        where: Callable[[], tuple[int, str]],
        phases: PhaseWatch,
        *,
        lines: Callable[[], Iterable[str]] = lambda: (),
        named: Sequence[str] = (),
    ) -> None:
        """where: the run's step and stage. lines: the last ones of its terminal. named: variables that hold secrets."""
        self._run, self._config, self._where, self._phases = run, config, where, phases
        self._lines, self._named = lines, tuple(named)
        self._queue: queue.SimpleQueue[Trigger | _Asked | None] = queue.SimpleQueue()
        self._gate, self._known = Gate(), tuple[PartProcess, ...]()
        self._log = deque[str](maxlen=MOST_LINES)
        self._handler = _Handler(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._collector: subprocess.Popen[str] | None = None
        self._ended = threading.Event()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on. Nothing where no incident is to be kept."""
        if self._config.keep == 0:
            return
        self._loop = loop
        stack_signal.answer()
        logging.getLogger(OURS).addHandler(self._handler)
        self._thread = threading.Thread(target=self._work, name="incidents", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What is being collected has a moment."""
        logging.getLogger(OURS).removeHandler(self._handler)
        if self._thread is None:
            return
        self._ended.set()
        self._queue.put(None)
        self._thread.join(END_S)
        if self._collector is not None and self._thread.is_alive():
            _end(self._collector)
        self._thread = None

    def notice(self, line: str, incident: Incident | None) -> None:
        """Called by whoever logs: it only takes note."""
        self._log.append(line)
        if incident is not None:
            good = incident.kind == RECOVERED or incident.recovered_s is not None
            self._queue.put(Trigger(incident.kind, incident.who, incident.text, time.time(), recovered=good))

    def collect_failure(self, reason: str) -> Path | None:
        """The folder of a run that fails now; None where there is none within the deadline. Waits."""
        if self._thread is None or not self._thread.is_alive():
            return None
        request = _Asked(Trigger("failed", "run", reason, time.time()), queue.SimpleQueue())
        self._queue.put(request)
        with suppress(queue.Empty):
            return request.answer.get(timeout=FAILURE_S)
        log.warning("no incident was collected within %g s", FAILURE_S)
        return None

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        refreshed = 0.0
        while not self._ended.is_set():
            try:
                entry = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                entry = None
            try:
                if entry is not None:
                    self._take(entry)
                elif (phase := self._phases.overdue()) is not None:
                    step, stage = self._where()
                    text = f"step {step + 1} of stage {stage}: {phase.describe()}"
                    warn(log, Incident(kind="stall", who=phase.name, text=text))
                elif time.monotonic() - refreshed > REFRESH_S:
                    self._known, refreshed = remember(self._known, list_parts(owner_of(os.getpid()))), time.monotonic()
            except Exception as error:  # fault boundary
                log.warning("an incident was not collected: %s", describe_error(error))

    def _take(self, request: Trigger | _Asked) -> None:
        if isinstance(request, Trigger):
            self._handle(request)
            return
        folder: Path | None = None
        try:
            folder = self._handle(request.trigger)
        finally:
            request.answer.put(folder)

    def _handle(self, trigger: Trigger) -> Path | None:
        folder, is_repeat = self._gate.belongs_to(trigger)
        if folder is not None:
            self._add(folder, trigger, is_repeat)
        elif not trigger.recovered:
            folder = self._open(trigger)
        return folder

    def _open(self, trigger: Trigger) -> Path:
        step, stage = self._where()
        hider = Hider(known_secrets(environments(owner_of(os.getpid())), self._named))
        folder = make_folder(self._run, step, trigger.kind, trigger.who, self._config.keep)
        self._gate.opened(trigger, folder)
        phase = self._phases.current()
        facts = Facts(
            kind=trigger.kind, who=trigger.who, text=hider.hide(visible_lines(trigger.text)), time=trigger.time,
            step=step, stage=stage, phase=asdict(phase) if phase is not None else {},
        )  # fmt: skip
        write_facts(folder, facts)
        (folder / "stacks").mkdir()
        (folder / "logs").mkdir()
        (folder / "logs" / "driver.txt").write_text(hider.hide("\n".join([*self._lines(), "", *self._log]) + "\n"))
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop makes tasks faster than they are read
                (folder / "stacks" / "driver-tasks.txt").write_text(hider.hide(describe_tasks(self._loop)))
        problem = self._run_collector(folder)
        if problem:
            facts = replace(facts, missing=(problem,))
            write_facts(folder, facts)
            (folder / PARAGRAPH).write_text(hider.hide(describe(facts)))
            log.warning("the incident %s is incomplete: %s", folder.name, problem)
        return folder

    def _run_collector(self, folder: Path) -> str:
        """Why it is incomplete; "" where it is not."""
        request = Request(folder=folder, run=self._run, driver=os.getpid(), known=self._known, named=self._named)
        began = time.monotonic()
        self._collector = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            _, stderr = self._collector.communicate(request.to_json(), timeout=COLLECT_S)
        except subprocess.TimeoutExpired:
            _end(self._collector)
            return f"the collector did not end within {COLLECT_S:g} s"
        if self._collector.returncode:
            return (stderr.strip().splitlines() or [f"the collector ended with {self._collector.returncode}"])[-1]
        log.info("incident %s collected in %.1f s", folder.name, time.monotonic() - began)
        return ""

    def _add(self, folder: Path, trigger: Trigger, is_repeat: bool) -> None:
        facts = read_facts(folder)
        if is_repeat:
            facts = replace(facts, times=facts.times + 1, last=trigger.time)
        elif len(facts.also) < MOST_ALSO:
            hider = Hider(known_secrets(environments(owner_of(os.getpid())), self._named))
            after = trigger.time - facts.time
            facts = replace(
                facts, also=(*facts.also, hider.hide(f"{after:.1f} s later: {visible_lines(trigger.text)}"))
            )
        write_facts(folder, facts)
        if (folder / PARAGRAPH).is_file():
            (folder / PARAGRAPH).write_text(describe(facts))


def remember(before: Sequence[PartProcess], now: Sequence[PartProcess]) -> tuple[PartProcess, ...]:
    """The processes that are there now, and the last ones of each part that has none any more."""
    names = {process.part for process in now}
    return (*now, *(process for process in before if process.part not in names))


class _Handler(logging.Handler):
    def __init__(self, keeper: IncidentKeeper) -> None:
        super().__init__()
        self._keeper = keeper

    def emit(self, record: logging.LogRecord) -> None:
        try:
            at = time.strftime("%H:%M:%S", time.gmtime(record.created))
            line = f"{at} {record.name}: {record.getMessage()}"
        except Exception:  # a line that cannot be put together may not fail whoever logs it
            self.handleError(record)
            return
        self._keeper.notice(line, getattr(record, ATTRIBUTE, None))


def _end(collector: subprocess.Popen[str]) -> None:
    """With what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(collector.pid, signal.SIGKILL)
    collector.wait()
