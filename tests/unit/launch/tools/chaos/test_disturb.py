"""How a disturbed run ends: by a signal to `rlsys chaos` itself, or because it fails. Its processes are real here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from launch.cli import run as rlsys
from launch.tools.chaos.disturb import Disturbed, Disturber, Done, has_failed_alone
from launch.tools.chaos.faults import parse_fault
from launch.tools.chaos.machines import Machines
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
row = {{"stage": "rl", "step": 1, "time": time.time(), "time/step": 1.0}}
(run / "metrics.jsonl").write_text(json.dumps(row) + "\\n")
time.sleep(600)
"""
FAILS = """#!{python}
import json, pathlib, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
starts = len(list(run.glob("start-*")))
(run / f"start-{{starts}}").touch()
if starts < 2:
    (run / "metrics.jsonl").write_text(json.dumps({{"stage": "sft", "step": starts, "time": time.time()}}) + "\\n")
print("rlsys: failed: no such model")
sys.exit(1)
"""
DISTURBS = """
import sys
sys.executable = sys.argv.pop(1)
from launch.cli import main
from launch.tools.chaos import hand
hand.find_room = lambda folder: (2**16 + 4096, 0)
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
    heeds = partial(signal.signal, number, signal.SIG_DFL)  # also where `nohup` has it ignored
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    chaos = subprocess.Popen([*command, *faults], cwd=tmp_path, env=env, preexec_fn=heeds)
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


def test_a_run_that_fails_by_itself_is_started_again_only_while_it_gets_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path / "fails", FAILS))
    with (tmp_path / "log").open("w") as output:
        disturber = Disturber(["train", "x"], tmp_path, output, lambda line: None, Machines(), most_starts=9)
        record = disturber.play([], iter(()), "rl", float("inf"))
    assert (len(record.starts), record.code, record.failed_alone) == (3, 1, True)


def test_what_a_fault_left_is_no_failure_of_the_run_itself() -> None:
    def fails(*faults: str, starts: float = 100.0, newest: float = 0.0, code: int = 1) -> bool:
        done = [Done(fault=parse_fault("kill" if "+" not in text else "fill", text), time=90.0, processes=1)
                for text in faults]  # fmt: skip
        return has_failed_alone(Disturbed(code=code, began=1.0, ended=0.0, done=done, starts=[starts]), newest)

    assert fails() and fails("rollout:0@1s") and fails("disk@1s+5s")
    assert not fails("disk@1s+15s"), "the disk was full when it started"
    assert not fails("rollout:0@1s", starts=89.0) and not fails(newest=101.0) and not fails(code=-9)
    cut = Done(fault=parse_fault("cut", "node:2@1s"), time=90.0, processes=1)
    assert not has_failed_alone(Disturbed(code=1, began=1.0, ended=0.0, done=[cut], starts=[100.0]), 0.0)


def test_the_last_line_says_why_a_run_failed_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path / "fails", FAILS))
    assert rlsys(["chaos", "quickstart", "--kill", "driver@1s", "--run-dir", str(tmp_path / "run")]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"rlsys: failed: {tmp_path / 'run.log'}: the run failed without a fault: no such model"
