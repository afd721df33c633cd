"""Lines of JSON that a run has written, one at a time, and what is damaged in them."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rlsys.errors import BadInput
from rlsys.files import is_there
from rlsys.jsonl import json_object
from rlsys.untrusted import visible

LONGEST = 2**26  # bytes of a line: a damaged or hostile file may be a single one of any length
TAIL = 2**18  # bytes of a file's end: several rows of metrics, hundreds of events


def bounded_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """(bytes, line); None in place of a line of LONGEST bytes and more, which is passed over."""
    while line := file.readline(LONGEST):
        size, end = len(line), line[-1:]
        if size < LONGEST:
            yield size, line
            continue
        while end != b"\n" and (more := file.readline(LONGEST)):
            size, end = size + len(more), more[-1:]
        yield size, None


def whole_line(line: bytes | None, where: str) -> bytes:
    if line is None:
        raise BadInput("too long", where=where, expected=f"less than {LONGEST:,} bytes in a line")
    return line


class DamageLog:
    """What could not be read: of each file the first damage, and how many there are."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def note(self, file: str, problem: object) -> None:
        self._first.setdefault(file, str(problem))
        self._count[file] = self._count.get(file, 0) + 1

    def lines(self) -> tuple[str, ...]:
        """One for each file: `metrics.jsonl line 7: not JSON (...), and 2 more in this file`."""
        more = {file: f", and {count - 1:,} more in this file" for file, count in self._count.items() if count > 1}
        return tuple(visible(first) + more.get(file, "") for file, first in self._first.items())


def open_file(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def finite_numbers(row: Mapping[str, Any], keep: Callable[[str], bool]) -> dict[str, float]:
    """The finite numbers of a row whose keys are to be kept; a whole number of hundreds of digits is none either."""
    numbers = {visible(key): number for key, number in row.items() if type(number) in (int, float) and keep(key)}
    return {key: float(number) for key, number in numbers.items() if abs(number) <= sys.float_info.max}


def read_lines(path: Path, damage: DamageLog | None = None) -> Iterator[dict[str, Any]]:
    """The JSON lines of a run, one at a time, without a last one that a run in progress has not written whole.

    With `damage` a damaged line is noted and left out, and so is a file that cannot be read. Without it they raise
    BadInput, which names the file and the line.
    """
    name = path.name if damage is not None else str(path)
    try:
        with open_file(path) as lines:
            for number, (_, line) in enumerate(bounded_lines(lines), start=1):
                try:
                    yield json_object(whole_line(line, f"{name} line {number}"), f"{name} line {number}")
                except BadInput as error:
                    if line is not None and not line.endswith(b"\n"):
                        return
                    if damage is None:
                        raise
                    damage.note(name, error)
    except EOFError:  # the copy of a compressed file that ends in the middle
        return
    except (OSError, zlib.error) as error:
        unread = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        if damage is None:
            raise BadInput(unread, where=path) from error
        damage.note(name, f"{name}: {unread}")


def read_lines_if_there(path: Path, damage: DamageLog) -> Iterator[dict[str, Any]]:
    """Nothing of a file that an earlier version did not write."""
    try:
        exists = is_there(path)
    except (BadInput, OSError) as error:
        damage.note(path.name, f"{path.name}: {getattr(error, 'strerror', None) or error}")
        return
    if exists:
        yield from read_lines(path, damage)


def read_tail(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in the last lines of a file, without damaged ones; nothing of what is no file."""
    try:
        if not is_there(path):
            return
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read(TAIL).split(b"\n")
    except (BadInput, OSError):  # a pipe, perhaps
        return
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # of the first one the beginning is missing, of the last one the end
            continue
        if isinstance(value, dict):
            yield value


def ends_whole(path: Path) -> bool:
    """Whether the last line has its end."""
    with open(path if path.is_file() else os.devnull, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) in (b"", b"\n")


def read_object(path: Path, damage: DamageLog) -> dict[str, Any]:
    """A file that holds one JSON object; empty where it is missing or damaged."""
    try:
        return json_object(path.read_bytes(), path.name) if is_there(path) else {}
    except BadInput as error:
        damage.note(path.name, error)
    except OSError as error:
        damage.note(path.name, f"{path.name}: cannot be read ({error.strerror})")
    return {}
