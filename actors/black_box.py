"""What a process leaves for the one that has to end it: who was at work in it, and on which line.

A page of memory that both share. The process marks in it, before every step of its event loop, for whom it takes that
step; a signal makes it write its stack behind the mark. Both are there however it is stuck: asleep, in a loop, or in C
code that keeps the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import faulthandler
import linecache
import mmap
import os
import re
import signal
import struct
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple

_PAGE = mmap.PAGESIZE  # the stack stands behind it
_MARK = struct.Struct("QQ")
_STACK_BYTES = 1 << 20  # of a written stack: about 10,000 frames
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
_OURS = os.path.dirname(__file__) + os.sep
STACK_SIGNAL = signal.SIGUSR1


class CallMark(NamedTuple):
    """For whom a step of the loop is taken: a group, and its call. Zeros: for no group."""

    group: int = 0
    call: int = 0


NO_CALL = CallMark()
_working_for: contextvars.ContextVar[CallMark] = contextvars.ContextVar("working_for", default=NO_CALL)


def create() -> int:
    """A file descriptor of a new box, in memory, for both processes."""
    box = os.memfd_create("rlsys-black-box")
    os.ftruncate(box, _PAGE)
    return box


def read_mark(box: int) -> CallMark:
    return CallMark(*_MARK.unpack(os.pread(box, _MARK.size, 0)))


def end(box: int) -> int:
    """Where the next stack will stand."""
    return os.fstat(box).st_size


def read_stack(box: int, start: int) -> str:
    """What the process has written of its stack from `start`, an earlier `end`."""
    return os.pread(box, _STACK_BYTES, start).decode(errors="replace")


class Recorder:
    """The side of the process itself."""

    def __init__(self, box: int) -> None:
        self._box = box
        self._page = mmap.mmap(box, _PAGE)

    def tell_stacks(self) -> None:
        """From now on: at the signal, and when the process crashes."""
        os.lseek(self._box, _PAGE, os.SEEK_SET)
        faulthandler.register(STACK_SIGNAL, file=self._box, all_threads=False)
        faulthandler.enable(file=self._box, all_threads=False)

    def mark(self, mark: CallMark) -> None:
        _MARK.pack_into(self._page, 0, *mark)

    def context(self, mark: CallMark) -> contextvars.Context:
        """Tasks that are created in it, and those that they create, work for `mark`."""
        context = contextvars.copy_context()
        context.run(_working_for.set, mark)
        return context

    def task_factory(
        self, loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        """For `loop.set_task_factory`."""
        mark = _working_for.get() if context is None else context.get(_working_for, NO_CALL)
        return asyncio.Task(_Marked(work, self, mark), loop=loop, context=context)


class _Marked(Coroutine[Any, Any, Any]):
    """A coroutine whose every step is marked."""

    def __init__(self, work: Coroutine[Any, Any, Any], recorder: Recorder, mark: CallMark) -> None:
        self._work, self._recorder, self._mark = work, recorder, mark

    def send(self, value: Any) -> Any:
        self._recorder.mark(self._mark)
        try:
            return self._work.send(value)
        finally:
            self._recorder.mark(NO_CALL)

    def throw(self, *error: Any) -> Any:
        self._recorder.mark(self._mark)
        try:
            return self._work.throw(*error)
        finally:
            self._recorder.mark(NO_CALL)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._work.__await__()


def place(stack: str) -> str:
    """On which line the code stands that this package called, from a stack as `faulthandler` writes it.

    In one line, with its text; where that is deep inside a library, also the line from which the library was entered.
    Empty when the stack says nothing.
    """
    frames = []
    for match in filter(None, map(_FRAME.match, stack.splitlines())):
        if match["file"].startswith(_OURS):
            break
        frames.append((match["file"], int(match["line"]), match["name"]))
    if not frames:
        return ""
    inner, outer = frames[0], frames[-1]
    location = _line(*inner)
    return location if len(frames) == 1 else f"{location}, called from {_line(*outer)}"


def _line(file: str, number: int, name: str) -> str:
    text = linecache.getline(file, number).strip()
    return f"{file}:{number} in {name}" + (f": {text[:120]}" if text else "")
