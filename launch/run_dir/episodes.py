"""The episodes of a run as columns, from trajectories/index.jsonl or, where it lacks a file, from the file itself.

Only what lists, filters and counts need is in memory: 2 million episodes take 200 MB. The lines of those that are
wanted are then read from their places.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from launch.run_dir.directory import RunDirectory
from launch.run_dir.lines import LONGEST, DamageLog, bounded_lines, open_file, read_lines_if_there, whole_line
from launch.run_dir.names import episodes_name
from launch.run_dir.places import UNKNOWN, Place, packed_of, read_places
from launch.run_dir.solved import Solving, read_solving
from rlsys.episode_index import INDEX, EpisodePlace, index_row
from rlsys.errors import BadInput
from rlsys.jsonl import json_object
from rlsys.untrusted import visible

Column = npt.NDArray[Any]
Show = Callable[[str, int, int | None], None]  # what, how many are done, of how many

STEP_FILE = re.compile(r"step-(\d+)\.jsonl(?:\.gz)?")
TEXTS = ("file", "stage", "play", "when", "task_id", "end", "failure", "worker")  # kept as a number of a list
PLACES = ("offset", "length", "member", "within")  # of a line: `launch.run_dir.places`
WHOLE = (
    *PLACES,
    *("step", "sequence", "sibling", "attempt", "tokens", "turns", "calls", "first_version", "last_version"),
)
REAL = ("reward", "advantage", "seconds")
FLAGS = ("correct", "truncated")
WIDE = {"offset": "q", "member": "q"}  # all other whole numbers fit into 32 bits
EVERY = 20_000  # rows between two looks at the progress


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episodes:
    """One row for each episode that was written, by step, then file, then place in it."""

    folder: Path  # that the files are in
    columns: Mapping[str, Column]  # each [N]: of TEXTS numbers into `texts`; UNKNOWN or nan where null
    texts: Mapping[str, Sequence[str]]
    damage: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["step"])

    def text(self, name: str, row: int) -> str | None:
        """Of one of TEXTS."""
        code = int(self.columns[name][row])
        return None if code == UNKNOWN else self.texts[name][code]

    def has(self, name: str, value: str) -> npt.NDArray[np.bool_]:
        """[N]: which rows have this text."""
        texts = self.texts[name]
        code = texts.index(value) if value in texts else UNKNOWN - 1
        return np.equal(self.columns[name], code)

    @property
    def in_training(self) -> npt.NDArray[np.bool_]:
        """[N]: which were played to be trained on, and not to evaluate."""
        return np.equal(self.columns["play"], UNKNOWN)

    def lines(self, selected: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """(row, its line of JSON) of these rows, in ascending order; those that cannot be read are left out."""
        for file, rows in _by_file(self.columns["file"], sorted(selected)):
            places = (Place(*(int(self.columns[name][row]) for name in PLACES)) for row in rows)
            with suppress(OSError, EOFError, zlib.error):
                yield from zip(rows, read_places(self.folder / self.texts["file"][file], places), strict=True)


def _by_file(files: Column, rows: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    begin = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or files[rows[at]] != files[rows[begin]]:
            yield int(files[rows[begin]]), list(rows[begin:at])
            begin = at


def read_episodes(run: RunDirectory, show: Show = lambda name, done, total: None, *, indexed: bool = True) -> Episodes:
    """Of the whole run. show: hears how far it is. indexed: whether the index may stand for a file, which takes longer
    to read, and which has a digest in the journal."""
    damage, folder, builder = DamageLog(), run.path / "trajectories", _Builder()
    sizes = dict(_sizes(folder, damage))
    index = read_lines_if_there(folder / INDEX, damage) if indexed else ()
    for number, row in enumerate(index, start=1):
        builder.add(row)
        if not number % EVERY:
            show("episodes", number, None)
    sound = builder.sound_files(sizes)
    places = dict(_places(run, sizes.keys() - sound))
    builder.keep_files(sound)
    solved_by = {stage: read_solving(run, stage) for stage in {place.stage for place in places.values()}}
    for done, (file, place) in enumerate(places.items(), start=1):
        for row in _rows_of(folder / file, place, solved_by[place.stage], damage):
            builder.add(row)
        show("files of episodes without an index", done, len(places))
    columns, texts = builder.finish()
    return Episodes(folder=folder, columns=columns, texts=texts, damage=damage.lines())


@dataclass(frozen=True, slots=True)
class _Size:
    stored: int  # bytes on the disk
    plain: int  # without compression; of a compressed file those of its last gzip member modulo 2^32, as its end says


def _sizes(folder: Path, damage: DamageLog) -> Iterator[tuple[str, _Size]]:
    """Of each file of episodes. A link is no file of the run: it could lead anywhere."""
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else ():
        if path.name == INDEX or path.name.startswith("."):
            continue
        if path.is_symlink() or not path.is_file():
            damage.note("links", f"trajectories/{path.name}: expected a file, left out")
            continue
        try:
            stored = plain = path.stat().st_size
            if path.suffix == ".gz":
                with path.open("rb") as file:
                    file.seek(max(0, stored - 4))
                    plain = int.from_bytes(file.read(4), "little")
            yield path.name, _Size(stored, plain)
        except OSError as error:
            damage.note(path.name, f"trajectories/{path.name}: cannot be read ({error.strerror})")


def _places(run: RunDirectory, files: Iterable[str]) -> Iterator[tuple[str, EpisodePlace]]:
    """What each file was played for: a step that was taken back has no row any more, and its file is left out."""
    stages = {int(step): stage for step, stage in zip(run.rows.step, run.rows.stage, strict=True)}
    file_names = set(files)
    for evaluation in run.evaluations:
        for key in evaluation.row:
            play, _, last = key.rpartition("/")
            if last == "episodes":
                name = episodes_name(evaluation.stage, evaluation.when, evaluation.step, play)
                for file in sorted(file_names & {f"{name}.jsonl", f"{name}.jsonl.gz"}):
                    place = _beginning(file, evaluation.step, evaluation.stage)
                    yield file, replace(place, play=play, when=evaluation.when)
    for file in sorted(file_names):
        match = STEP_FILE.fullmatch(file)
        if match and int(match[1]) in stages:
            step = int(match[1])
            yield file, _beginning(file, step, stages[step])


def _beginning(file: str, step: int, stage: str) -> EpisodePlace:
    return EpisodePlace(file=file, offset=0, length=0, step=step, stage=stage)


def _rows_of(path: Path, place: EpisodePlace, solving: Solving, damage: DamageLog) -> Iterator[dict[str, Any]]:
    offset = 0
    try:
        with open_file(path) as lines:
            for number, (size, line) in enumerate(bounded_lines(lines), start=1):
                if line is not None and not line.endswith(b"\n"):
                    return
                at, offset = offset, offset + size
                where = f"{path.name} line {number}"
                try:
                    episode = json_object(whole_line(line, where), where)
                except BadInput as error:
                    damage.note(path.name, f"trajectories/{error}")
                    continue
                task = episode.get("task")
                task_id = str(task.get("task_id")) if isinstance(task, Mapping) else ""
                solved_by = solving.of(place.play, task_id)
                yield index_row(episode, replace(place, offset=at, length=size), solved_by)
    except EOFError:
        return
    except (OSError, zlib.error, struct.error) as error:
        damage.note(path.name, f"trajectories/{path.name}: cannot be read ({error})")


@dataclass(frozen=True, slots=True)
class _End:
    """Of the rows of a file so far, in bytes."""

    offset: int
    within: int  # of the last one's gzip member
    stored: int  # where that member ends in the file; UNKNOWN where the rows do not say it

    def fits(self, file: str, size: _Size) -> bool:
        if not file.endswith(".gz"):
            return self.offset == size.plain
        if self.stored == UNKNOWN:  # it is of one member
            return self.offset % 2**32 == size.plain
        return (self.within % 2**32, self.stored) == (size.plain, size.stored)


class _Builder:
    """Rows to columns, without a row of them in memory."""

    def __init__(self) -> None:
        codes = {name: "i" for name in TEXTS} | {name: WIDE.get(name, "i") for name in WHOLE}
        codes |= {name: "d" for name in REAL} | {name: "b" for name in FLAGS}
        self._arrays: dict[str, array[Any]] = {name: array(code) for name, code in codes.items()}
        self._texts: dict[str, dict[str, int]] = {name: {} for name in TEXTS}
        self._ends: dict[str, _End] = {}  # of each file, behind its last row
        self._broken: set[str] = set()  # files of which a row is missing or doubled
        self._kept: Column | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        file, offset, length = row.get("file"), row.get("offset"), row.get("length")
        if not isinstance(file, str) or type(offset) is not int or type(length) is not int:
            return  # its file is not whole then, and read itself
        if not 0 < length < LONGEST or not 0 <= offset < 2**62:
            self._broken.add(file)
            return
        last, packed = self._ends.get(file), packed_of(row)
        if (last.offset if last else 0) != offset:  # in what is read from the file itself: a damaged line was left out
            self._broken.add(file)
        self._ends[file] = _End(offset + length, packed.within + length, packed.end)
        row = {**row, "member": packed.begin, "within": packed.within}
        for name in TEXTS:
            self._arrays[name].append(self._number_of(name, row.get(name)))
        for name in WHOLE:
            value, most = row.get(name), 2**62 if name in WIDE else 2**31
            self._arrays[name].append(value if type(value) is int and -most < value < most else UNKNOWN)
        for name in REAL:
            value = row.get(name)
            self._arrays[name].append(_as_float(value))
        for name in FLAGS:
            value = row.get(name)
            self._arrays[name].append(int(value) if isinstance(value, bool) else UNKNOWN)

    def _number_of(self, name: str, value: Any) -> int:
        if not isinstance(value, str):
            return UNKNOWN
        codes = self._texts[name]
        return codes.setdefault(value if name == "file" else visible(value), len(codes))

    def sound_files(self, sizes: Mapping[str, _Size]) -> set[str]:
        """Those whose rows are the whole file."""
        fits = {file for file, end in self._ends.items() if file in sizes and end.fits(file, sizes[file])}
        return fits - self._broken

    def keep_files(self, sound: set[str]) -> None:
        """Forget the rows of all others, which come again."""
        mask = np.array([file in sound for file in self._texts["file"]], bool)
        files = np.frombuffer(self._arrays["file"], np.intc)
        self._kept = mask[files] if len(files) else np.zeros(0, bool)
        self._ends = {file: end for file, end in self._ends.items() if file in sound}
        self._broken = set()

    def finish(self) -> tuple[dict[str, Column], dict[str, list[str]]]:
        columns: dict[str, Column] = {name: np.array(values) for name, values in self._arrays.items()}
        texts = {name: list(codes) for name, codes in self._texts.items()}
        first = self._kept if self._kept is not None else np.zeros(0, bool)
        mask = np.concatenate([first, np.ones(len(columns["step"]) - len(first), bool)])
        rank = np.argsort(np.argsort(np.array(texts["file"], dtype=object))) if texts["file"] else np.zeros(0, np.int64)
        at = np.flatnonzero(mask)
        order = at[np.lexsort((columns["offset"][at], rank[columns["file"][at]], columns["step"][at]))]
        return {name: column[order] for name, column in columns.items()}, texts


def _as_float(value: Any) -> float:
    try:
        return float(value) if type(value) in (int, float) else float("nan")
    except OverflowError:
        return float("nan")
