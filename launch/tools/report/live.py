"""What run directories say now: read again when their files have changed, and at most as often as reading allows."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.episodes import Episodes, Show, read_episodes
from launch.run_dir.names import EVALUATIONS, EVENTS, METRICS, PLAYING
from launch.run_dir.state import is_locked
from launch.tools.report.kept import Room
from launch.tools.report.packing import Pack, dump_line, make_pack
from launch.tools.report.page import token_texts

READ = ("config.yaml", "run.json", METRICS, EVALUATIONS, EVENTS, "summary.json")
KEPT = 2  # readings: a page that was made from the one before still asks for its blocks
MOST_PLAYING = 64 * 2**20  # bytes: a thousand engines, each with as much as it tells
REST = 10  # times as long as a reading took is the next one put off: a large run is not read all the time

MakeReport = Callable[[Sequence[RunDirectory], Sequence[Episodes]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Reading:
    revision: str
    report: Mapping[str, Any]
    pack: Pack

    def part(self, name: str) -> str | None:
        """What scripts of the page ask for by name: index, pieces, block-N. None for another name."""
        if name == "index":
            return dump_line(self.pack.index())
        if name == "pieces":
            return dump_line(token_texts(self.pack.runs))
        number = name.removeprefix("block-")
        exists = number.isascii() and number.isdigit() and len(number) < 8 and int(number) < len(self.pack.blocks)
        return "\n".join(self.pack.lines(int(number))) if exists else None


class LiveRuns:
    """Of run directories that a run may be writing to."""

    def __init__(self, folders: Sequence[Path], make_report: MakeReport, room: Room | None) -> None:
        self._folders = folders
        self._make_report = make_report
        self._room = room
        self._lock = threading.Lock()
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._took_s, self._read_at = 0.0, float("-inf")

    def is_running(self) -> bool:
        return any(map(is_locked, self._folders))

    def playing(self) -> list[Any]:
        """An episode of each engine of those that are in progress, as far as it is. `run` is the number of its run."""
        lines: list[Any] = []
        for number, path in enumerate(folder / PLAYING for folder in self._folders):
            with suppress(OSError, ValueError, RecursionError):
                if is_locked(path.parent) and path.is_file() and path.stat().st_size <= MOST_PLAYING:
                    episodes = json.loads(path.read_bytes())
                    lines += [line | {"run": number} for line in episodes if isinstance(line, dict)]
        return lines

    def newest(self, show: Show = lambda name, done, total: None) -> Reading:
        """Of what the files say now, or of a moment ago. show: hears how far reading is.

        Raises BadInput for what is no run directory any more.
        """
        with self._lock:
            last = next(reversed(self._readings.values()), None)
            if last is not None and time.monotonic() - self._read_at < REST * self._took_s:
                return last
            revision = self._revision()
            if last is None or last.revision != revision:
                self._readings[revision] = self._read(revision, show)
                self._readings.move_to_end(revision)
            while len(self._readings) > KEPT:
                self._readings.popitem(last=False)
            return next(reversed(self._readings.values()))

    def reading(self, revision: str) -> Reading | None:
        return self._readings.get(revision)  # also while the files are read again

    def _read(self, revision: str, show: Show) -> Reading:
        begin = time.monotonic()
        runs = [read_directory(folder) for folder in self._folders]
        episodes = [read_episodes(run, show) for run in runs]
        reading = Reading(revision, self._make_report(runs, episodes), make_pack(episodes, self._room))
        self._read_at = time.monotonic()
        self._took_s = self._read_at - begin
        return reading

    def _revision(self) -> str:
        """A digest of sizes and times of all files, which changes whenever one of them is written."""
        stamps = [[str(path), *_file_stamp(path)] for folder in self._folders for path in _list_files(folder)]
        stamps.append([is_locked(folder) for folder in self._folders])
        return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()[:16]


def _list_files(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in READ)
    yield folder / "trajectories"
    yield folder / "trajectories/index.jsonl"


def _file_stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns
