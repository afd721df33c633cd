"""What a person sees while a run is in progress: lines that stay, and on a terminal a clock with what is awaited."""

from __future__ import annotations

import math
import socket
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from launch.observe.row import StepRow
from rlsys.untrusted import visible_lines

LINE_EVERY_S = 10.0


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_start() -> str:
    """When and where, for a log that is read later, and elsewhere: its clock begins at 0:00."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')} on {socket.gethostname()}"


class Progress:
    """`say` is an event worth its own line, `begin` one that takes a while, `step` one optimizer step.

    A terminal gets the lines that a log gets, which stay, and below them a clock with what is awaited, which goes.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self.live: Live | None = None
        self._recent: list[tuple[float, int, str]] = []  # (seconds, step, stage) of the last steps, for the time left
        self._started = time.monotonic()
        self._last_line = -math.inf  # when a step or a count was last a line
        self._awaited, self._count, self._since = "", "", self._started

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self.live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self.clock)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing moves any more: what follows on this terminal is not ours."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def say(self, text: str) -> None:
        """Broken between words on a terminal alone. The text may hold a failure's, and with it a model's."""
        at = duration(time.monotonic() - self._started)
        self._console.print(f"[{at:>5}] {visible_lines(text)}", markup=False, soft_wrap=not self._console.is_terminal)
        sys.stdout.flush()

    def begin(self, text: str) -> None:
        """`say` it, and await it from now on."""
        self.doing(text)
        self.say(text)

    def doing(self, text: str) -> None:
        """What is awaited from now on: the clock's text, and what `count` counts."""
        self._awaited, self._count, self._since = text, "", time.monotonic()

    def count(self, done: int, total: int) -> None:
        """How far something without steps has come: in the clock on a terminal, every ten seconds in a log."""
        self._count = f": {done}/{total}"
        if self.live is None and time.monotonic() - self._last_line >= 10.0:
            self._last_line = time.monotonic()
            self.say(f"{self._awaited}{self._count}")

    def step(self, row: StepRow, stage_steps: int) -> None:
        """Show one row of metrics.jsonl; a log, and a terminal's scrollback, get one every two seconds."""
        stage, stage_step, values = row.stage, row.stage_step, row.to_json()
        self._recent = [r for r in self._recent if r[2] == stage][-20:] + [(time.monotonic(), stage_step, stage)]
        (first_s, first, _), (last_s, last, _) = self._recent[0], self._recent[-1]
        left = (stage_steps - stage_step) * (last_s - first_s) / (last - first) if last > first else None
        ends = duration(left) if left is not None else "…"
        if time.monotonic() - self._last_line >= 2.0 or stage_step == stage_steps:
            self._last_line = time.monotonic()
            shown = [f"stage {stage}", f"step {stage_step}/{stage_steps}"]
            shown += [f"{title} {form.format(values[key])}" for title, key, form in COLUMNS if key in values]
            self.say("  ".join([*shown, f"stage ends in {ends}"]))
        if stage_step < stage_steps:
            self.doing(f"stage {stage}: step {stage_step + 1} of {stage_steps}; the stage ends in {ends}")
        else:
            self.doing(f"stage {stage}: its end")

    def clock(self) -> Text:
        now = time.monotonic()
        if not self._awaited:
            return Text("")
        waited = f"{self._awaited}{self._count}, {duration(now - self._since)}"
        return Text(f"[{duration(now - self._started):>5}] {waited}", style="dim", no_wrap=True, overflow="ellipsis")


COLUMNS = (
    ("loss", "loss/nll", "{:.3f}"),
    ("loss", "loss/dpo", "{:.3f}"),
    ("prefers chosen", "dpo/accuracy", "{:.3f}"),
    ("held-out loss", "eval/loss", "{:.3f}"),
    ("held-out prefers", "eval/accuracy", "{:.3f}"),
    ("reward", "reward/mean", "{:.3f}"),
    ("correct", "reward/part/correct", "{:.3f}"),
    ("KL", "kl/reference", "{:.3g}"),
    ("tok/s generated", "tokens/generated_per_s", "{:.0f}"),
    ("tok/s trained", "tokens/trained_per_s", "{:.0f}"),
    ("lag", "lag/max", "{:.0f}"),
    ("gap", "mismatch/probe_max", "{:.0e}"),
    ("wait", "time/wait_rollout", "{:.1f}s"),
    ("update", "time/update", "{:.1f}s"),
)


class Bar:
    """How far a command without steps has come, on stderr: a bar on a terminal, a line every ten seconds in a log.

    `with Bar() as show: show("encode", 512, 6000)`. A `what` of another name is a new bar.
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

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show that `done` of `total` are done; None: the total is unknown."""
        if self._console.is_terminal:
            self._draw(what, done, total)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(f"rlsys: {what} {done:,}" + (f"/{total:,}" if total else ""), file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int, total: int | None) -> None:
        if self.bar is None or what != self._what:
            self.__exit__()
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(show_speed=True))
            self.bar = RichProgress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
            self._what = what
            # Where a resumed build starts is no work of this one: the time left is of its speed.
            self.bar.add_task(what, total=total, completed=done)
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=done)
        if total is not None and done >= total:
            self.__exit__()
