"""The report that a run makes at its end: after its lock is free, within a limit, and never at the run's expense."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from launch.reading.directory import read_directory
from launch.report.at_end import make_report, reporting
from launch.run.rundir import RunDir
from tests.run_directory import run_directory


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


def test_without_the_program_it_is_one_line_too(tmp_path: Path) -> None:
    assert make_report(tmp_path, (str(tmp_path / "absent"),)).startswith("no report (")


@pytest.mark.parametrize(
    ("when", "summary", "made"), [("end", True, True), ("none", True, False), ("end", False, False)]
)
def test_it_is_of_a_run_that_ended(tmp_path: Path, when: str, summary: bool, made: bool) -> None:
    path = run_directory(tmp_path / "run", [{"step": 1, "reward/mean": 1.0}])
    said: list[str] = []
    directory = RunDir(path)
    with pytest.raises(RuntimeError, match="of the run"), reporting(directory, when, said.append):
        if summary:
            (path / "summary.json").write_text('{"status": "failed", "steps": 1, "reason": "of the run"}')
        assert read_directory(path).state == "running"
        raise RuntimeError("of the run")
    assert (path / "report.html").is_file() == made == bool(said)
    if made:
        report = json.loads((path / "report.json").read_text())
        assert report["runs"][0]["status"] == "failed"
