"""How a disturbed run ends: by a signal to `rlsys chaos` itself, which is a real process here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.paths import ROOT

# In the place of Python, which would train: it gets the arguments of `rlsys train`.
TRAINS = """#!{python}
import json, os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])

def end(*_):
    (run / "ended").touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
(run / "pid").write_text(str(os.getpid()))
(run / "metrics.jsonl").write_text(json.dumps({{"stage": "rl", "time": time.time(), "time/step": 1.0}}) + "\\n")
time.sleep(600)
"""
DISTURBS = """
import shutil, sys, types
shutil.disk_usage = lambda path: types.SimpleNamespace(free=2**16 + 4096)
sys.executable = sys.argv.pop(1)
from launch.cli import main
main()
"""


def script(path: Path, text: str) -> str:
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_what_was_done_to_it(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-c", DISTURBS, script(tmp_path / "trains", TRAINS), "chaos", "quickstart"]
    faults = ["--fill", "disk@0s+600s", "--hang", "driver@0s+600s", "--run-dir", str(run)]
    chaos = subprocess.Popen([*command, *faults], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    driver = None
    try:
        until(lambda: (run / ".filler").exists())
        driver = psutil.Process(int((run / "pid").read_text()))
        until(lambda: driver.status() == psutil.STATUS_STOPPED)
        chaos.send_signal(number)
        assert chaos.wait(timeout=60) == 143
        assert (run / "ended").exists(), "in order: it had gone on before it was asked to end"
        assert not driver.is_running() and not (run / ".filler").exists()
    finally:
        chaos.kill()
        chaos.wait()
        if driver is not None and driver.is_running():
            driver.kill()
