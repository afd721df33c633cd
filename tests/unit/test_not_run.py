"""What was skipped or left out is listed at a session's end, with its reason, however many processes run the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import not_run
from tests.not_run import NotRun
from tests.paths import ROOT

TESTS = """
import pytest

@pytest.mark.skip(reason="no such tool here")
@pytest.mark.parametrize("number", range(3))
def test_skipped(number): ...

def test_skips(): pytest.skip("no such tool here")

@pytest.mark.slow
def test_slow(): ...

def test_passes(): ...
"""


@pytest.mark.parametrize("processes", [0, 2])
def test_skipped_and_deselected_tests_are_counted_by_their_reason(tmp_path: Path, processes: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(TESTS)
    file = tmp_path / "not_run.jsonl"
    file.write_text(json.dumps({"why": "of the session before", "count": 7, "files": []}) + "\n")
    command = [sys.executable, "-m", "pytest", "-m", "not slow", f"-n{processes}", "-p", "no:cacheprovider", "."]
    environment = os.environ | {not_run.VARIABLE: str(file), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    (head,) = [number for number, line in enumerate(lines) if "12 tests were not run here" in line]
    assert [line.split(maxsplit=1) for line in lines[head + 1 : head + 4]] == [
        ["7", "of the session before"],
        ["4", "no such tool here (test_some.py)"],
        ["1", 'left out by -m "not slow"'],
    ]
    assert len(file.read_text().splitlines()) == 3


def test_a_long_list_of_files_is_cut() -> None:
    (line,) = not_run.describe([NotRun("no GPU", 5, ("a.py", "b.py", "c.py", "d.py", "e.py"))])
    assert line.endswith("no GPU (a.py, b.py, c.py and 2 more)")
