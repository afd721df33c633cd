"""What the engines play now, as a file in the run directory: `rlsys view` follows an episode of each, turn by turn."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.worker import Excerpt, WorkerStatus
from launch.driver.run.run import Run
from launch.run_dir.names import PLAYING
from rlsys.types import Message


def show_playing(run: Run) -> None:
    """With every ping of the engines, unless no episode is to be written."""
    if any(stage.config.trajectories.keep for stage in run.config.stages):
        run.pool.shows = PlayingFile(run.dir.path).show


class PlayingFile:
    """Written beside the pings, which do not wait for a disk: what comes while it is being written is left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: threading.Thread | None = None

    def show(self, statuses: Mapping[str, WorkerStatus]) -> None:
        if self._writer is not None and self._writer.is_alive():
            return
        excerpts = {name: status.playing for name, status in statuses.items() if status.playing is not None}
        self._writer = threading.Thread(target=self._write, args=(excerpts,), name="playing", daemon=True)
        self._writer.start()

    def _write(self, excerpts: Mapping[str, Excerpt]) -> None:
        """Not synced: it is worth nothing after a loss of power. A full disk is no error here."""
        file, temporary = _files(self._folder)
        with suppress(OSError):
            temporary.write_text(json.dumps([as_line(name, excerpt) for name, excerpt in excerpts.items()]))
            temporary.rename(file)


def forget_playing(folder: Path) -> None:
    """At both ends of an attempt: one that was killed leaves what it played."""
    for path in reversed(_files(folder)):
        with suppress(OSError):
            path.unlink()


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / PLAYING, folder / f".{PLAYING}.tmp"


def as_line(worker: str, excerpt: Excerpt) -> dict[str, Any]:
    """As a line of trajectories/, as far as it is known."""
    return {"worker": worker, "prompt": _said(excerpt.prompt), "messages": _said(excerpt.messages)}


def _said(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
