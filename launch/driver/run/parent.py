"""The process that a driver runs under: it waits, and says how the run ended where the driver could not.

Ray ends a driver from C++ when the node manager or the head of its cluster is gone, and the kernel ends one with
SIGKILL when memory runs out: no `finally` runs then, nothing is said and processes stay. The parent is forked before
anything heavy is imported, and stays the process that the shell knows, with its exit code. What it has to know the
driver tells it on the way.

The driver and what it starts are a process group of their own: `timeout`, a batch system or a terminal send a signal
to all of a group, and Ray's processes would end at once, while the driver still saves. It reaches the parent alone,
which passes it on.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from launch.driver.checkpoints.checkpoint import FOLDER, RESERVE, step_of
from launch.driver.observe.events import Events
from launch.run_dir.names import EVENTS
from launch.run_dir.rows import read_last_step
from rlsys.files import replace_file
from rlsys.seals import with_own_digest
from rlsys.system.orphans import die_with

STOPS = (signal.SIGINT, signal.SIGTERM)
AS_TERM = (signal.SIGHUP, signal.SIGUSR1)  # of a terminal that is gone, of a batch system before its limit
CAUGHT = (*STOPS, *AS_TERM, signal.SIGQUIT)  # none of them may end this process before the run
JOB_CONTROL = (signal.SIGTSTP, signal.SIGCONT)
SAME_S = 1.0  # in which two signals are one stop
COLLECT_S = 25.0  # of what the driver left
SAID_LAST = 20  # lines of a log in which the reason is looked for
HEAD, NODE = "Ray's head (gcs_server)", "Ray's node manager (raylet)"
WORDS = {  # of Ray's part of a driver, before it ends the process
    HEAD: re.compile(r"Failed to connect to GCS|GCS has been unavailable"),
    NODE: re.compile(r"connection to the plasma store is failed|[Rr]aylet (is terminated|died|has died)"),
}


_pipe: int | None = None  # to the parent; of a driver that has one
_interrupted = -math.inf  # when


def tell(**facts: Any) -> None:
    """What the parent needs should this process be ended. Nothing where there is no parent."""
    if _pipe is not None:
        with contextlib.suppress(OSError):  # it is gone: SIGKILL for this process is on its way
            os.write(_pipe, (json.dumps(facts) + "\n").encode())


def with_parent(work: Callable[[], int], end_run: Callable[[str], str]) -> int:
    """`work` in a child. Both processes return: the child with its exit code, this one with that of the command.

    end_run: ends what bears the tag of a driver that is gone, and returns what is to be said of it.
    """
    global _pipe
    parent, (reader, writer) = os.getpid(), os.pipe()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    caught = {number for number in CAUGHT if signal.getsignal(number) != signal.SIG_IGN}  # as under nohup
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*caught, *JOB_CONTROL, signal.SIGCHLD})
    if child := os.fork():
        os.close(writer)
        code = _wait(child, caught)
        return finish_run(code, _read_report(reader), end_run)
    os.close(reader)
    die_with(parent)  # SIGKILL to the parent is meant for the run
    os.setpgid(0, 0)
    for number in (signal.SIGTTOU, signal.SIGTTIN):  # a terminal's, which it writes to from the background
        signal.signal(number, signal.SIG_IGN)
    _pipe = writer
    _take_stops(caught)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return work()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        for number in caught.difference({signal.SIGQUIT}):  # Python's end would put the default back
            signal.signal(number, signal.SIG_IGN)
        tell(farewell=True)


def _take_stops(caught: Set[signal.Signals]) -> None:
    """In a driver, until it has its own handlers: what is sent to both processes comes twice, and is one stop."""
    for number in caught & {*AS_TERM}:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    if signal.SIGINT in caught:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: object) -> None:
    global _interrupted
    before, _interrupted = _interrupted, time.monotonic()
    if _interrupted - before > SAME_S:  # the second must not break into what the first has begun
        raise KeyboardInterrupt


def _wait(child: int, caught: Set[signal.Signals]) -> int:
    """The exit code. Every signal is passed on: one that comes twice, as `ray job stop` sends it to each process of a
    job, is one stop to the driver."""
    while True:
        number = signal.sigwaitinfo({*caught, *JOB_CONTROL, signal.SIGCHLD}).si_signo
        if number in JOB_CONTROL:
            _stand_still(child, number)
            continue
        if number != signal.SIGCHLD:
            os.kill(child, signal.SIGTERM if number in AS_TERM else number)
            continue
        pid, status = os.waitpid(child, os.WNOHANG)  # SIGCHLD comes for one that is only stopped, too
        if pid:
            return os.waitstatus_to_exitcode(status)


def _stand_still(child: int, number: int) -> None:
    """Ctrl-Z, and `fg` or `bg` after it, of the whole run: it is another group than the terminal's."""
    stops = number == signal.SIGTSTP
    with contextlib.suppress(ProcessLookupError):  # it is no group yet, or gone
        os.killpg(child, signal.SIGSTOP if stops else signal.SIGCONT)
    if stops:
        os.kill(os.getpid(), signal.SIGSTOP)


def _read_report(reader: int) -> dict[str, Any]:
    """All that the driver reported. Its end is not awaited: the pipe may have other writers, forked by the driver."""
    os.set_blocking(reader, False)
    text = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(reader, 65536):
            text += chunk
    facts: dict[str, Any] = {}
    for line in text.decode().splitlines():
        facts |= json.loads(line)
    return facts


def finish_run(code: int, facts: Mapping[str, Any], end_run: Callable[[str], str]) -> int:
    """After the end of the driver, with all that it reported. Returns the exit code of the command."""
    if "farewell" not in facts:
        try:
            if -code not in STOPS:
                with contextlib.suppress(OSError, ValueError):  # whatever is wrong with a folder or a terminal
                    report_failure(code, facts)
        finally:
            if "owner" in facts and (message := end_run(facts["owner"])):
                _say(message)
        if -code not in STOPS:
            return 1
    if -code in STOPS:  # before the driver had a handler: the shell is to see the same
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


def report_failure(code: int, facts: Mapping[str, Any]) -> None:
    """The run's last line and its summary, in the place of a driver that is gone."""
    run = Path(facts["run"]) if "run" in facts else None
    reason = find_reason(code, facts.get("log"))
    hint = f"; the same command continues the run from {_newest(run)}" if run is not None else ""
    if run is not None and "driver" in facts and (folder := _collect(run, facts, reason)):
        hint += f"; what was collected of it: {folder}"
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout is not None and sys.stdout.isatty():  # None where it was closed (>&-)
            print("\r\x1b[2K\x1b[?25h", end="", flush=True)  # the clock's line goes, the cursor comes back
    _say(f"rlsys: failed: {reason}{hint}")
    if run is not None and "summary" not in facts:
        (run / RESERVE).unlink(missing_ok=True)  # kept for this
        summary = {"status": "failed", "reason": reason, "steps": _steps(run), "by": "parent"}
        replace_file(run / "summary.json", json.dumps(with_own_digest(summary), indent=1) + "\n")
    if run is not None:
        events = Events(run / EVENTS, lambda: (_steps(run), ""))
        events.add("end", f"failed: {reason}")
        events.close()


def _collect(run: Path, facts: Mapping[str, Any], reason: str) -> str:
    """The folder of an incident, while the parts are still there; "" where there is none."""
    command = [sys.executable, "-m", "launch.driver.incidents.after", str(run), str(facts["driver"]), reason]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        result = subprocess.run(command, capture_output=True, text=True, timeout=COLLECT_S, check=False)
        return result.stdout.strip()
    return ""


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal may be what is gone
        print(line, file=sys.stderr, flush=True)


def find_reason(code: int, log: str | None) -> str:
    """What ended a driver that could not say so itself. log: where Ray's part of it wrote."""
    if code == -signal.SIGKILL:
        return "the driver was killed (SIGKILL), by the kernel perhaps: see whether the machine ran out of memory"
    ended = f"the driver was ended by {signal.Signals(-code).name}" if code < 0 else "the driver was ended from outside"
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path(log).read_text(errors="replace").splitlines()[-SAID_LAST:] if log is not None else []
    for line in reversed(lines):
        for component, pattern in WORDS.items():
            if pattern.search(line):
                return f"{component} died, and with it the driver; see {Path(log or '').parent}"
    return f"{ended} (its own last words: {log})" if log is not None else f"{ended} before it could say why"


def _newest(run: Path) -> str:
    steps = [step_of(path) for path in run.glob("checkpoints/step-*") if FOLDER.fullmatch(path.name)]
    return f"step {max(steps)}" if steps else "the beginning"


def _steps(run: Path) -> int:
    """That stand in metrics.jsonl."""
    last = read_last_step(run)
    return last.step if last is not None else 0
