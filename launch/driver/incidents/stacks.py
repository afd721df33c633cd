"""Where a process stands: its Python stack, read from outside, so that it need not answer.

py-spy reads the memory of the other process without pausing it, stopped or not. Where the system forbids that (ptrace),
a part is asked by a signal (`rlsys.system.stack_signal`), and the reason is written down of those that do not answer.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launch.driver.incidents.processes import state_of
from launch.run_dir.lenient import decode_lenient
from rlsys.system import stack_signal

EACH_S = 5.0  # for one process
ASK_S = 2.0  # of one that may not be looked into
LIBRARIES = ("/site-packages/", "/lib/python3", "<frozen", "<string>")
MAIN = "MainThread"
ROOT = Path(__file__).resolve().parents[3]
HEAD = re.compile(r"(Current )?[Tt]hread (0x[0-9a-f]+)")
FRAME = re.compile(r'\s+File "(.*)", line (\d+) in (.*)')  # file, line, function


@dataclass(frozen=True, slots=True)
class Stack:
    text: str  # to be read
    place: str  # where its main thread stands, in one line; "" where that is not known
    problem: str = ""  # why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    name: str | None = None  # of the function
    filename: str = "?"
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """As py-spy has it, the innermost frame first."""

    thread_name: str | None = None
    thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False
    frames: tuple[Frame, ...] = ()


def pyspy() -> str | None:
    """The program of this environment, else of the path."""
    program = Path(sys.executable).with_name("py-spy")
    return str(program) if program.is_file() else shutil.which("py-spy")


def read_stack(pid: int, deadline_s: float = EACH_S) -> Stack:
    """Of all its threads. Takes the deadline and ASK_S at most."""
    stack = ask_pyspy(pid, deadline_s)
    if not stack.problem or state_of(pid) in ("stopped", "gone"):
        return stack
    threads = parse_written(stack_signal.ask(pid, ASK_S))
    return Stack(format_threads(threads), innermost_frame_line(threads)) if threads else stack


def ask_pyspy(pid: int, deadline_s: float) -> Stack:
    program = pyspy()
    if program is None:
        return Stack("", "", "py-spy is not installed")
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        return Stack("", "", f"no answer within {deadline_s:g} s")
    except OSError as error:
        return Stack("", "", f"py-spy does not start: {error.strerror}")
    if result.returncode:
        return Stack("", "", explain(result.stderr))
    try:
        threads = [decode_lenient(Thread, thread) for thread in json.loads(result.stdout)]
        return Stack(format_threads(threads), innermost_frame_line(threads))
    except (ValueError, TypeError):
        return Stack("", "", "py-spy gave no stack")


def parse_written(text: str) -> list[Thread]:
    """Threads as py-spy has them, from what `faulthandler` writes. The kernel gives the signal to the main thread."""
    threads: list[Thread] = []
    for line in text.splitlines():
        if head := HEAD.match(line):
            current, identity = head.groups()
            threads.append(Thread(thread_name=MAIN if current else identity, active=bool(current)))
        elif threads and (match := FRAME.match(line)):
            filename, number, name = match.groups()
            frame = Frame(name=name, filename=filename, line=int(number))
            threads[-1] = replace(threads[-1], frames=(*threads[-1].frames, frame))
    return threads


def explain(stderr: str) -> str:
    """Why py-spy gave none, in one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "py-spy failed without a word"
    if any("ermission" in line or "not permitted" in line for line in lines):
        return "the system forbids to read another process (ptrace): in a container add the capability SYS_PTRACE"
    return next((line.removeprefix("Error: ") for line in lines if line.startswith("Error")), last)[:200]


def format_threads(threads: Sequence[Thread]) -> str:
    lines = []
    for thread in sorted(threads, key=lambda thread: thread.thread_name != MAIN):
        gil = ", holds the GIL" if thread.owns_gil else ""
        active = "active" if thread.active else "idle"
        lines.append(f"thread {thread.thread_name or thread.thread_id} ({active}{gil})")
        lines += [f"    {frame_line(frame)}" for frame in thread.frames]
    return "\n".join(lines) + "\n"


def innermost_frame_line(threads: Sequence[Thread]) -> str:
    """In one line, the innermost line of ours in any thread, the main one first, and what of a library it called.

    An actor's own code need not run in its main thread. Without one of ours, where the main thread stands.
    """
    ordered = sorted(threads, key=lambda thread: (thread.thread_name != MAIN, not thread.active))
    for thread in ordered:
        frames = thread.frames
        frame = next((entry for entry in frames if not any(mark in entry.filename for mark in LIBRARIES)), None)
        if frame is not None:
            return frame_line(frame) if frame == frames[0] else f"{frame_line(frame)}, in {frames[0].name}"
    frames = ordered[0].frames if ordered else ()
    return frame_line(frames[0]) if frames else ""


def frame_line(frame: Frame) -> str:
    file = Path(frame.filename)
    inside = file.is_relative_to(ROOT) and not any(mark in str(file) for mark in LIBRARIES)
    short = file.relative_to(ROOT).as_posix() if inside else "/".join(file.parts[-3:])
    return f"{frame.name} ({short}:{frame.line})"
