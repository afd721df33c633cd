"""What the tasks of an event loop wait for, read from a thread: a stuck loop need not answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from types import CodeType
from typing import Any

from launch.driver.incidents.stacks import Frame, frame_line

DEEPEST = 30  # frames of a task
MOST_TASKS = 20_000  # that are looked at: 1,024 episodes have a few each
MOST_SHOWN = 60  # kinds of place in a file for people


def describe_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Stacks of coroutines, outermost first; those that are equal are one, with their number."""
    stacks = Counter(tuple(frames_of(task.get_coro())) for task in list(asyncio.all_tasks(loop))[:MOST_TASKS])
    lines = []
    for frames, count in stacks.most_common(MOST_SHOWN):
        lines.append(f"{count} task{'s' * (count > 1)}")
        lines += [f"    {frame}" for frame in frames]
    if (more := len(stacks) - MOST_SHOWN) > 0:
        lines.append(f"and {more} other stacks")
    return "\n".join(lines) + "\n"


def frames_of(coroutine: Any) -> Iterator[str]:
    """A frame for each coroutine that awaits the next, and what the innermost awaits."""
    for _ in range(DEEPEST):
        code, frame = _code(coroutine), _running(coroutine)
        if code is None:
            if coroutine is not None:
                yield f"awaits {type(coroutine).__name__}"
            return
        line = frame.f_lineno if frame is not None else code.co_firstlineno
        yield frame_line(Frame(name=code.co_qualname, filename=code.co_filename, line=line))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _code(coroutine: Any) -> CodeType | None:
    code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
    return code if isinstance(code, CodeType) else None


def _running(coroutine: Any) -> Any:
    return getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
