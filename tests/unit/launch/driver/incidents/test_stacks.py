"""A stack is read by looking into a process, or, where the system forbids that, by asking it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch.driver.incidents import stacks
from launch.driver.incidents.stacks import Stack, explain, innermost_frame_line, parse_written, read_stack

CODE = """
import sys, threading, time
def deep_in_it(): print("ready", flush=True); time.sleep(600)
if sys.argv[1] == "answers":
    from rlsys.system import stack_signal
    stack_signal.answer()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
deep_in_it()
"""


def begin(how: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", CODE, how], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


@pytest.fixture
def processes() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    children = {how: begin(how) for how in ("answers", "silent")}
    yield children
    for child in children.values():
        child.kill()
        child.communicate()


def test_a_part_that_may_not_be_looked_into_is_asked_and_any_other_left_alone(
    processes: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "ask_pyspy", lambda pid, deadline_s: Stack("", "", "forbidden"))
    stack = read_stack(processes["answers"].pid)
    assert stack.problem == "" and "deep_in_it" in stack.place and stack.text.count("thread ") == 2
    assert read_stack(processes["silent"].pid) == Stack("", "", "forbidden")
    assert processes["silent"].poll() is None and processes["answers"].poll() is None


WRITTEN = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/x/.venv/lib/python3.11/site-packages/torch/autograd.py", line 9 in backward
  File "/x/learners/rank.py", line 41 in update
  File "/x/.venv/lib/python3.11/site-packages/ray/worker.py", line 5 in main
"""


def test_the_place_is_the_innermost_line_that_is_no_library() -> None:
    threads = parse_written(WRITTEN)
    assert [thread.thread_name for thread in threads] == ["0x00007f01", "MainThread"]
    assert innermost_frame_line(threads) == "update (x/learners/rank.py:41), in backward"
    assert innermost_frame_line(threads[:1]) == "wait (lib/python3.11/threading.py:320)"
    assert innermost_frame_line([]) == ""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Permission Denied: Try running again with elevated permissions by going 'sudo env", "SYS_PTRACE"),
        ("Error: Failed to suspend process\nReason: Operation not permitted (os error 1)\n", "SYS_PTRACE"),
        ("Error: Failed to find python version from target process\nReason: x\n", "Failed to find python version"),
        ("", "without a word"),
    ],
)
def test_why_there_is_none_is_one_line(said: str, why: str) -> None:
    assert why in explain(said) and "\n" not in explain(said)
