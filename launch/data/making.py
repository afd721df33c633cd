"""What is counted while one file is made, and how it comes into its place whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from envs.tasks.files import Located
from launch.data.duplicates import LeftOut
from launch.data.manifest import FileNote
from launch.data.records import Part
from rlsys.errors import BadInput
from rlsys.files import naming, whole_file
from rlsys.jsonl import line_of

MOST_UNREADABLE = 0.01  # of a source's records; more, and it is another file than was meant


class Making:
    """One file: its counts, and what there is to say about it."""

    def __init__(self, part: Part, path: Path, *, partial: bool) -> None:
        self.part, self.path = part, path
        self._partial = partial
        self.records: Counter[str] = Counter()  # by source
        self.counts: Counter[str] = Counter()
        self.left: list[LeftOut] = []
        self._unreadable: list[str] = []
        self._warnings: list[str] = []

    def read(self, reader: Callable[[Located], Iterable[Any]], record: Located) -> list[Any]:
        """What a record holds; nothing where it cannot be read."""
        try:
            return list(reader(record))
        except BadInput as error:
            self._unreadable.append(str(error))
            return []

    def check(self, name: str, expected: int | None) -> None:
        """Of a source that was read to its end: how many records it has, and how many could be read."""
        found = self.records[name]
        if len(self._unreadable) > MOST_UNREADABLE * found:
            first = self._unreadable[0]
            raise BadInput(f"{name}: {len(self._unreadable):,} of {found:,} records cannot be read, the first: {first}")
        if expected is not None and found != expected:
            self.differs(f"{name} has {found:,} records, {expected:,} expected")

    def differs(self, what: str) -> None:
        self._warnings.append(what)

    def cut(self, rows: list[Any], chosen: list[Any], wanted: int) -> list[Any]:
        if len(chosen) < wanted:
            self.differs(f"{len(chosen):,} rows, {wanted:,} wanted")
        self.counts["not drawn"] += len(rows) - len(chosen)
        return chosen

    def settle(self) -> None:
        """Raises BadInput where numbers differ and nobody has said that they may."""
        if self._warnings and not self._partial:
            found = "; ".join(self._warnings)
            raise BadInput(f"{self.part.file}: {found}: another version, or a slice of it? --partial goes on with it")

    def note(self, rows: int, sha256: str, made_from: str, present: Sequence[str]) -> FileNote:
        left = Counter(each.why.replace("_", " ") for each in self.left)
        counts = {**left, **self.counts, "unreadable": len(self._unreadable)}
        first = (f"unreadable: {self._unreadable[0]}",) if self._unreadable else ()
        return FileNote(
            file=self.part.file,
            role=str(self.part.role),
            rows=rows,
            sha256=sha256,
            made_from=made_from,
            sources=tuple(present),
            read=dict(self.records),
            left_out={name: count for name, count in counts.items() if count},
            warnings=(*self._warnings, *first),
        )


def write_left_out(path: Path, left: Sequence[LeftOut]) -> None:
    """All of them beside the file: `train.left_out.jsonl`."""
    beside = path.with_suffix(".left_out.jsonl")
    if left:
        write(beside, (line_of({"why": each.why, "of": each.of, **each.row}) for each in left))
    else:
        beside.unlink(missing_ok=True)


def write(path: Path, lines: Iterable[bytes]) -> None:
    with _written(path) as file:
        file.writelines(lines)


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        yield file
