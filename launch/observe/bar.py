"""How far a command without steps has come, on stderr: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0


class Bar:
    """`with Bar() as show: show("encode", 512, 6000)`. A `what` of another name is a new bar."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._what = ""
        self._last_line = time.monotonic()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """`total` None: nobody knows how many there are."""
        if self._console.is_terminal:
            self._draw(what, done, total)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(f"rlsys: {what} {done:,}" + (f"/{total:,}" if total else ""), file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int, total: int | None) -> None:
        if self._bar is None or what != self._what:
            self.__exit__()
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(show_speed=True))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
            self._what = what
            # Where a resumed build starts is no work of this one: the time left is of its speed.
            self._bar.add_task(what, total=total, completed=done)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)
        if total is not None and done >= total:
            self.__exit__()
