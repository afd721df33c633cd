"""What a person sees while a run goes on: a live table on a terminal, plain lines when piped."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from launch.run.row import StepRow


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """`say` is an event worth a line of its own; `step` is one optimizer step."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._recent: list[tuple[float, int, str]] = []  # (seconds, step, stage) of the last steps, for the time left
        self._started = time.monotonic()
        self._last_line = 0.0

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        self._console.print(f"[{duration(time.monotonic() - self._started):>5}] {text}", markup=False)
        sys.stdout.flush()

    def count(self, done: int, total: int) -> None:
        """How far something without steps has come: live on a terminal, every ten seconds in a log."""
        if self._live is not None:
            self._live.update(f"{done}/{total}")
        elif time.monotonic() - self._last_line >= 10.0:
            self._last_line = time.monotonic()
            self.say(f"{done}/{total}")

    def step(self, row: StepRow, stage_steps: int) -> None:
        """Show one row of metrics.jsonl."""
        stage, stage_step, values = row.stage, row.stage_step, row.to_json()
        self._recent = [r for r in self._recent if r[2] == stage][-20:] + [(time.monotonic(), stage_step, stage)]
        (first_s, first, _), (last_s, last, _) = self._recent[0], self._recent[-1]
        left = (stage_steps - stage_step) * (last_s - first_s) / (last - first) if last > first else None
        shown = {"stage": stage, "step": f"{stage_step}/{stage_steps}"}
        for title, key, form in COLUMNS:
            if key in values:
                shown[title] = form.format(values[key])
        shown["stage ends in"] = duration(left) if left is not None else "…"
        if self._live is not None:
            table = Table(box=None, pad_edge=False)
            for title in shown:
                table.add_column(title, justify="right")
            table.add_row(*shown.values())
            self._live.update(table)
        elif time.monotonic() - self._last_line >= 2.0 or stage_step == stage_steps:  # a log, not a flood
            self._last_line = time.monotonic()
            self.say("  ".join(f"{title} {value}" for title, value in shown.items()))


COLUMNS = (
    ("loss", "loss/nll", "{:.3f}"),
    ("loss", "loss/dpo", "{:.3f}"),
    ("prefers chosen", "dpo/accuracy", "{:.3f}"),
    ("held-out loss", "eval/loss", "{:.3f}"),
    ("held-out prefers", "eval/accuracy", "{:.3f}"),
    ("reward", "reward/mean", "{:.3f}"),
    ("correct", "reward/part/correct", "{:.3f}"),
    ("tok/s generated", "tokens/generated_per_s", "{:.0f}"),
    ("tok/s trained", "tokens/trained_per_s", "{:.0f}"),
    ("lag", "lag/max", "{:.0f}"),
    ("gap", "mismatch/probe_max", "{:.0e}"),
    ("wait", "time/wait_rollout", "{:.1f}s"),
    ("update", "time/update", "{:.1f}s"),
)
