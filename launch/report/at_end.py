"""The report that a run makes of itself when it ends: in a process of its own, so that it cannot harm the run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.run.rundir import RunDir

END_S, STOP_S = 60.0, 10.0  # seconds that it may take; after a stop somebody waits for the process to end
REPORT = (sys.executable, "-m", "launch", "report")


@contextmanager
def reporting(directory: RunDir, when: str, say: Callable[[str], None]) -> Iterator[None]:
    """However the run inside ends, once it has left a summary. when: `report` of the configuration."""
    try:
        yield
    finally:
        directory.close()  # a report of a locked directory would be of a run that goes on
        if when == "end" and (directory.path / "summary.json").is_file():
            say(make_report(directory.path))


def make_report(path: Path, command: Sequence[str] = REPORT, limit_s: float | None = None) -> str:
    """Of the run directory `path`. Returns the line to say: where it is, or why there is none."""
    limit_s = limit_s or (STOP_S if _was_stopped(path) else END_S)
    by_hand = f"`rlsys report {path}` makes it"
    try:
        done = subprocess.run(
            [*command, str(path)], stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no report within {limit_s:g} s: {by_hand}"
    except OSError as error:
        return f"no report ({error.strerror}): {by_hand}"
    if done.returncode == 0:
        return f"report: {path / 'report.html'}"
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"no report ({said[-1] if said else f'exit code {done.returncode}'}): {by_hand}"


def _was_stopped(path: Path) -> bool:
    with suppress(OSError, ValueError):
        found = json.loads((path / "summary.json").read_bytes())
        return isinstance(found, dict) and found.get("status") == "stopped"
    return False
