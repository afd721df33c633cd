"""The parent of a driver: what it passes on, what it says of one that ended without a word. The drivers are fakes."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launch.driver.checkpoints.checkpoint import RESERVE
from launch.driver.run import cleanup, parent
from launch.driver.run.parent import HEAD, NODE, find_reason, finish_run
from rlsys.seals import own_digest
from tests.makers.made import records

DRIVER = """
import os, signal, subprocess, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    # Ignored where nohup, or a script's `&`, started the tests, or where a run in their own process left them so.
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
from launch.cli import end_run
from launch.driver.run.parent import tell, with_parent

def driver():
{body}

sys.exit(with_parent(driver, end_run))
"""
SAYS_EACH = """
came = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: came.append(number) or print(number, flush=True))
print(os.getpid(), flush=True)
while signal.SIGTERM not in came:
    time.sleep(0.01)
return 143
"""


def started(body: str, terminal: int | None = None, **environment: str) -> "subprocess.Popen[str]":
    code = DRIVER.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    "))
    return subprocess.Popen(
        [sys.executable, "-c", "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n" * bool(terminal) + code],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | environment,
    )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_signal_to_the_command_reaches_the_driver_once() -> None:
    process = started(SAYS_EACH)
    assert int(line(process)) != process.pid
    process.send_signal(signal.SIGINT)
    assert line(process) == "2"
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(), process.returncode) == (("15\n", ""), 143)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_other_requests_to_end_stop_the_driver(number: signal.Signals) -> None:
    process = started(SAYS_EACH)
    line(process)
    process.send_signal(number)
    assert (process.communicate(), process.returncode) == (("15\n", ""), 143)


def test_an_interrupt_of_the_whole_group_is_one_and_leaves_no_traceback() -> None:
    process = started("""
        try:
            print(1, flush=True)
            while True:
                signal.pause()
        finally:
            print(2, flush=True)
    """)
    line(process)
    os.killpg(process.pid, signal.SIGINT)
    assert (process.communicate(), process.returncode) == (("2\n", ""), 130)


def test_a_signal_to_the_whole_group_spares_what_the_driver_has_started() -> None:
    """As of `timeout`, which sends it to its child too: Ray's processes would be gone before the driver has saved."""
    process = started("""
        sleeper = subprocess.Popen(["sleep", "60"])
        got = []  # and no signal.pause(), which one that came a moment before would leave waiting
        signal.signal(signal.SIGTERM, lambda *_: got.append(1))
        print(sleeper.pid, flush=True)
        while not got:
            time.sleep(0.05)
        time.sleep(0.2)
        print(sleeper.poll(), flush=True)
        sleeper.kill()
        return 143
    """)
    line(process)
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    assert (process.communicate(), process.returncode) == (("None\n", ""), 143)


def test_a_signal_to_the_command_of_a_ray_job_reaches_the_driver() -> None:
    """As of a `timeout` in the job's entry point, which Ray knows nothing of."""
    process = started(SAYS_EACH, RAY_JOB_CONFIG_JSON_ENV_VAR="{}")
    line(process)
    os.killpg(process.pid, signal.SIGTERM)
    assert (process.communicate(), process.returncode) == (("15\n", ""), 143)


def test_a_driver_writes_to_a_terminal_that_stops_what_writes_from_the_background() -> None:
    keyboard, terminal = pty.openpty()
    modes = termios.tcgetattr(terminal)
    modes[3] |= termios.TOSTOP
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    process = started("os.write(0, b'step 1'); return 0", terminal)
    assert os.read(keyboard, 6) == b"step 1"
    assert (process.communicate(), process.returncode) == (("", ""), 0)
    os.close(keyboard)
    os.close(terminal)


def test_sigquit_leaves_no_processes(tmp_path: Path) -> None:
    process = started(ends_without_a_word(begun(tmp_path), "signal.pause()"))
    child = psutil.Process(int(line(process)))
    process.send_signal(signal.SIGQUIT)
    assert "continues the run" in process.communicate()[1]
    assert process.returncode == 1 and not child.is_running()


def test_nothing_odd_keeps_the_parent_from_ending_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (begun(tmp_path) / "checkpoints" / "step-000009.aside").mkdir()
    (tmp_path / RESERVE).write_bytes(b"x")
    monkeypatch.setattr(sys, "stdout", None)  # `>&-`
    ended: list[str] = []
    facts = {"run": str(tmp_path), "owner": "here:1:2"}
    assert finish_run(1, facts, lambda owner: ended.append(owner) or "") == 1
    assert ended == ["here:1:2"] and not (tmp_path / RESERVE).exists()
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 5
    assert "from step 4" in capsys.readouterr().err
    monkeypatch.setattr(parent, "report_failure", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        finish_run(1, facts, lambda owner: ended.append(owner) or "")
    assert len(ended) == 2


def test_ctrl_c_reaches_the_driver_once() -> None:
    keyboard, terminal = pty.openpty()
    process = started(SAYS_EACH, terminal)
    line(process)
    os.write(keyboard, b"\x03")  # to the command's group
    assert line(process) == "2"
    process.send_signal(signal.SIGTERM)  # behind whatever the parent did with the first
    assert (process.communicate(), process.returncode) == (("15\n", ""), 143)
    os.close(keyboard)
    os.close(terminal)


def test_ctrl_z_stops_the_run_and_fg_continues_it() -> None:
    keyboard, terminal = pty.openpty()
    process = started(SAYS_EACH, terminal)
    run = [psutil.Process(process.pid), psutil.Process(int(line(process)))]
    os.write(keyboard, b"\x1a")
    until(lambda: {part.status() for part in run} == {psutil.STATUS_STOPPED})
    process.send_signal(signal.SIGCONT)
    until(lambda: psutil.STATUS_STOPPED not in {part.status() for part in run})
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(), process.returncode) == (("15\n", ""), 143)
    os.close(keyboard)
    os.close(terminal)


@pytest.mark.parametrize("code", [0, 1, 2, 130, 143])
def test_exit_codes_are_the_drivers(code: int) -> None:
    process = started(f"sys.exit({code})" if code > 2 else f"return {code}")
    assert (process.communicate(), process.returncode) == (("", ""), code)


def test_a_driver_without_a_handler_dies_of_the_signal_as_before() -> None:
    process = started("print(1, flush=True); signal.pause()")
    line(process)
    process.terminate()
    assert (process.communicate(), process.returncode) == (("", ""), -signal.SIGTERM)


def test_the_driver_dies_with_its_parent() -> None:
    process = started("print(os.getpid(), flush=True); signal.pause()")
    driver = psutil.Process(int(line(process)))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    driver.wait(60)


def ends_without_a_word(run: Path, how: str, *, summary: bool = False) -> str:
    """A driver that starts a process of its own, tells its parent what a driver tells, and is ended from C."""
    log = run / "core.log"
    log.write_text("I fine\nE rpc_client.h:204: Failed to connect to GCS within 60 seconds.\n")
    return f"""
    os.environ["RLSYS_OWNER"] = f"test-parent:{{os.getpid()}}"
    child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tell(run={str(run)!r}, owner=os.environ["RLSYS_OWNER"])
    tell(log={str(log)!r})
    if {summary}:
        tell(summary=True)
    print(child.pid, flush=True)  # last: the test may end this process as soon as it reads it
    {how}
    """


def begun(run: Path) -> Path:
    (run / "checkpoints" / "step-000004").mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"step": 4}\n{"step": 5}\n{"ste')
    return run


def test_a_driver_that_ray_ended_gets_its_line_its_summary_and_no_processes(tmp_path: Path) -> None:
    process = started(ends_without_a_word(begun(tmp_path), "os._exit(1)"))
    child = psutil.Process(int(line(process)))
    stderr = process.communicate()[1]
    assert process.returncode == 1
    assert stderr.startswith(f"rlsys: failed: {HEAD} died") and stderr.count("\n") == 1
    assert "the same command continues the run from step 4" in stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["steps"], HEAD in summary["reason"]) == ("failed", 5, True)
    assert summary["sha256"] == own_digest(summary)
    (event,) = records(tmp_path / "events.jsonl")
    assert (event["kind"], event["step"], HEAD in event["text"]) == ("end", 5, True)
    assert not child.is_running()
    assert not cleanup.find_owned(f"test-parent:{process.pid}")


def test_a_summary_of_the_drivers_own_stays(tmp_path: Path) -> None:
    (begun(tmp_path) / "summary.json").write_text("{}")
    process = started(ends_without_a_word(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", summary=True))
    assert "SIGKILL" in process.communicate()[1]
    assert (process.returncode, (tmp_path / "summary.json").read_text()) == (1, "{}")


def test_what_ended_a_driver(tmp_path: Path) -> None:
    log = tmp_path / "core.log"
    log.write_text("W connection.cc:216: The connection to the plasma store is failed. Terminate the process.\n")
    assert NODE in find_reason(1, str(log))
    log.write_text("nothing that we know\n")
    assert str(log) in find_reason(1, str(log))
    assert "SIGSEGV" in find_reason(-signal.SIGSEGV, None)
    assert "memory" in find_reason(-signal.SIGKILL, str(tmp_path / "none"))
