"""The report that a run makes at its end: after its lock is free, within a limit, and never at the run's expense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.driver.run.rundir import RunDir
from launch.run_dir.directory import read_directory
from launch.tools.report import at_end
from launch.tools.report.at_end import make_report, report_at_end
from tests.makers.run_directory import run_directory


@pytest.mark.parametrize(
    ("program", "limit_s", "says"),
    [
        ("raise SystemExit('disk full')", 30.0, "no report (disk full)"),
        ("raise SystemExit(3)", 30.0, "no report (exit code 3)"),
        ("import time; time.sleep(60)", 0.05, "no report within 0.05 s"),
        ("pass", 30.0, "report: "),
    ],
)
def test_its_failure_is_one_line(tmp_path: Path, program: str, limit_s: float, says: str) -> None:
    line = make_report(tmp_path, (sys.executable, "-S", "-c", program), limit_s)
    assert line.startswith(says) and "\n" not in line
    assert says == "report: " or f"rlsys report {tmp_path}" in line


@pytest.mark.parametrize("first", ["pass", "os.kill(os.getpid(), signal.SIGTERM)"])  # of whoever ends every process
def test_a_signal_ends_it_at_once(tmp_path: Path, first: str) -> None:
    """Also where a run that tidies up ignores both."""
    program = f"import os, signal, time; {first}; os.kill({os.getpid()}, signal.SIGTERM); time.sleep(60)"
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        line = make_report(tmp_path, (sys.executable, "-S", "-c", program), 300.0)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert line.startswith("no report (it was stopped)")


def test_a_signal_while_it_starts_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def interrupted(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*command, **options)
        signal.raise_signal(signal.SIGTERM)
        return process

    monkeypatch.setattr(at_end.subprocess, "Popen", interrupted)
    line = make_report(tmp_path, (sys.executable, "-S", "-c", "import time; time.sleep(60)"), 300.0)
    assert line.startswith("no report (it was stopped)")


def test_a_stopped_job_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    command = (sys.executable, "-S", "-c", "pass")
    assert make_report(tmp_path, command).startswith("report: ")
    (tmp_path / "summary.json").write_text('{"status": "stopped"}')
    assert make_report(tmp_path, command).startswith("no report of a stopped job")


def test_an_earlier_process_has_its_own(tmp_path: Path) -> None:
    path = run_directory(tmp_path / "run", [{"step": 1}], summary={"status": "failed", "steps": 1})
    lines: list[str] = []
    with pytest.raises(RuntimeError), report_at_end(RunDir(path), "end", lines.append):
        raise RuntimeError("refused before it began")
    assert lines == []


def test_without_the_program_it_is_one_line_too(tmp_path: Path) -> None:
    assert make_report(tmp_path, (str(tmp_path / "absent"),)).startswith("no report (")


@pytest.mark.parametrize(
    ("when", "summary", "made"), [("end", True, True), ("none", True, False), ("end", False, False)]
)
def test_it_is_of_a_run_that_ended(tmp_path: Path, when: str, summary: bool, made: bool) -> None:
    path = run_directory(tmp_path / "run", [{"step": 1, "reward/mean": 1.0}])
    lines: list[str] = []
    directory = RunDir(path)
    with pytest.raises(RuntimeError, match="of the run"), report_at_end(directory, when, lines.append):
        if summary:
            (path / "summary.json").write_text('{"status": "failed", "steps": 1, "reason": "of the run"}')
        assert read_directory(path).state == "running"
        raise RuntimeError("of the run")
    assert (path / "report.html").is_file() == made == bool(lines)
    if made:
        report = json.loads((path / "report.json").read_text())
        assert report["runs"][0]["status"] == "failed"
