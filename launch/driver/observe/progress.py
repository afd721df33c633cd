"""What a person sees while a run is in progress: lines that stay, and on a terminal a clock with what is awaited."""

from __future__ import annotations

import math
import socket
import sys
import threading
import time
from collections import deque

import psutil
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from launch.driver.observe.columns import LEFT, Layout, lay_out
from launch.driver.observe.row import StepRow
from rlsys.untrusted import visible_lines

LINE_EVERY_S = 10.0  # between two lines of one count
LAST_LINES = 300  # that are remembered
SILENT_S = 60.0  # that a log is, at most
LOG_WIDTH = 140  # characters of a line of numbers where there is no terminal to ask
CLOCK_WIDTH = 8  # "[ 0:00] "
PAUSES = ((60.0, 2.0), (600.0, 10.0), (math.inf, 30.0))  # (age of a stage, seconds between two of its rows)


def duration(seconds: float) -> str:
    minutes, remainder = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"


def format_start() -> str:
    """When and where, for a log that is read later, and elsewhere: its clock begins at 0:00."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')} on {socket.gethostname()}"


class Progress:
    """`say` is an event worth its own line, `begin` one that takes a while, `step` one optimizer step.

    A terminal gets the lines that a log gets, which stay, and below them a clock with what is awaited, which goes.
    A log gets a line with what is awaited when nothing else was said for a minute.
    """

    def __init__(self, console: Console | None = None, *, since: float | None = None) -> None:
        """since: where its clock begins, of `time.monotonic`. None: now."""
        self._console = console or Console(highlight=False, soft_wrap=True)
        self.live: Live | None = None
        self._recent: list[tuple[float, int, str]] = []  # (seconds, step, stage) of the last steps, for the time left
        self.started = time.monotonic() if since is None else since
        self._last_line = -math.inf  # when a step or a count was last a line
        self._last_said = time.monotonic()
        self._stage = ("", 0.0)  # whose steps are shown, and since when
        self._keys: set[str] = set()  # of its rows so far
        self._layout: Layout | None = None
        self._explained: set[str] = set()  # titles of columns
        self._awaited, self._count, self._since = "", "", self.started
        self._ended = threading.Event()
        self._said = deque[str](maxlen=LAST_LINES)

    @property
    def last_lines(self) -> list[str]:
        """The newest lines that stay, oldest first."""
        return list(self._said)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self.live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self.clock)
            self.live.start()
        else:
            threading.Thread(target=self._keep_saying, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing moves any more: what follows on this terminal is not ours."""
        self._ended.set()
        if self.live is not None:
            self.live.stop()
            self.live = None

    def say(self, text: str) -> None:
        """Broken between words on a terminal alone. The text may hold a failure's, and with it a model's."""
        self._last_said = time.monotonic()
        line = f"[{duration(self._last_said - self.started):>5}] {visible_lines(text)}"
        self._said.append(line)
        self._console.print(line, markup=False, soft_wrap=not self._console.is_terminal)
        sys.stdout.flush()

    def begin(self, text: str) -> None:
        """`say` it, and await it from now on."""
        self.doing(text)
        self.say(text)

    def doing(self, text: str) -> None:
        """What is awaited from now on: the clock's text, and what `count` counts."""
        self._awaited, self._count, self._since = text, "", time.monotonic()

    def count(self, completed: int, total: int) -> None:
        """How far something without steps has come: in the clock on a terminal, every ten seconds in a log."""
        self._count = f": {completed}/{total}"
        if self.live is None and time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(f"{self._awaited}{self._count}")

    def within_step(self, completed: int, total: int, unit: str) -> None:
        """How far a step has come: in the clock on a terminal; in a log in the line that is said after a silent
        minute, since steps may be short and many. total: 0 where that is not known yet, of which nothing is shown."""
        self._count = f": {completed} of {total} {unit}" if total else ""

    def end_within_step(self) -> None:
        self._count = ""

    def detail(self, text: str) -> None:
        """What of that is in progress: in the clock on a terminal, a line at each change in a log."""
        if text and self._count != f": {text}":
            self._count = f": {text}"
            if self.live is None:
                self.say(f"{self._awaited}{self._count}")

    def sign_of_life(self) -> None:
        """In a log, where nothing was said for a minute: what is awaited."""
        if self._awaited and time.monotonic() - self._last_said >= SILENT_S:
            self.say(self._waiting())

    def _keep_saying(self) -> None:
        while not self._ended.wait(1.0):
            self.sign_of_life()

    def step(self, row: StepRow, stage_steps: int) -> None:
        """Show one row of metrics.jsonl; a log, and a terminal's scrollback, get fewer the longer the stage takes."""
        stage, stage_step, values, now = row.stage, row.stage_step, row.to_json(), time.monotonic()
        if stage != self._stage[0]:
            self._stage, self._keys, self._layout = (stage, now), set(), None
        self._keys |= values.keys()
        self._recent = [r for r in self._recent if r[2] == stage][-20:] + [(now, stage_step, stage)]
        (first_s, first, _), (last_s, last, _) = self._recent[0], self._recent[-1]
        remaining_s = (stage_steps - stage_step) * (last_s - first_s) / (last - first) if last > first else None
        ends = duration(remaining_s) if remaining_s is not None else "…"
        if now - self._last_line >= pause_s(now - self._stage[1]) or stage_step == stage_steps:
            self._last_line = now
            self.say(self._lay_out(stage, stage_steps).line(stage_step, values, ends))
        if stage_step < stage_steps:
            self.doing(f"stage {stage}: step {stage_step + 1} of {stage_steps}; the stage ends in {ends}")
        else:
            self.doing(f"stage {stage}: its end")

    def _lay_out(self, stage: str, steps: int) -> Layout:
        """The titles are a line where they are new, and each of them is explained once."""
        width = self._console.width if self._console.is_terminal else LOG_WIDTH
        layout = lay_out(stage, steps, sorted(self._keys), width - CLOCK_WIDTH)
        if layout != self._layout:
            if legend := layout.legend(self._explained):
                self.say(legend)
            self._explained |= {LEFT, *(column.title for column in layout.columns)}
            self.say(layout.header())
            self._layout = layout
        return layout

    def _waiting(self) -> str:
        return f"{self._awaited}{self._count}, {duration(time.monotonic() - self._since)}"

    def clock(self) -> Text:
        if not self._awaited:
            return Text("")
        at = duration(time.monotonic() - self.started)
        return Text(f"[{at:>5}] {self._waiting()}", style="dim", no_wrap=True, overflow="ellipsis")


def pause_s(age_s: float) -> float:
    """Between two rows of a stage that is so old: a stage of hours is no scrollback of thousands of rows."""
    return next(pause for limit, pause in PAUSES if age_s < limit)


def process_start() -> float:
    """When this process began, on the clock of `time.monotonic`."""
    created: float = psutil.Process().create_time()
    return time.monotonic() - max(0.0, time.time() - created)


class Bar:
    """How far a command without steps has come, on stderr: a bar on a terminal, a line every ten seconds in a log.

    `with Bar() as show: show("encode", 512, 6000)`. Another `label` begins a new bar.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.bar: RichProgress | None = None
        self._what = ""
        self._last_line = time.monotonic()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def __call__(self, label: str, completed: int, total: int | None) -> None:
        """Show that `completed` of `total` are done; None: the total is unknown."""
        if self._console.is_terminal:
            self._draw(label, completed, total)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(f"rlsys: {label} {completed:,}" + (f"/{total:,}" if total else ""), file=sys.stderr, flush=True)

    def _draw(self, label: str, completed: int, total: int | None) -> None:
        if self.bar is None or label != self._what:
            self.__exit__()
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(show_speed=True))
            self.bar = RichProgress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
            self._what = label
            # Where a resumed build starts is no work of this one: the time left is of its speed.
            self.bar.add_task(label, total=total, completed=completed)
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=completed)
        if total is not None and completed >= total:
            self.__exit__()
