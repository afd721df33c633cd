"""What a stage has done so far, on disk: a line for each piece of work, appended as it ends, continued after a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.run.rundir import locked
from rlsys.errors import BadInput, differences
from rlsys.files import naming
from rlsys.jsonl import json_object, line_of

BEGUN = "begun_with"  # key of the first line: what must be the same for lines to stand in one file

Found = Callable[[dict[str, Any], str, int], None]  # a line's object, where it stands, and its place in the file


class LineStore:
    """Lines of JSON after a first one that says what they have in common. Only their places are for memory."""

    def __init__(self, path: Path, begun_with: Mapping[str, Any], found: Found, *, what: str) -> None:
        """Create or continue `path`; `found` is told of every line. A torn last line is cut off.

        Raises BadInput where it was begun with something else, or where another process writes it. what: whose files
        these are, "rlsys generate".
        """
        self.path, self._what = path, what
        self._file = locked(path, "a+b", str(path), "another process is writing it")
        try:
            self._continue(json.loads(json.dumps(begun_with, default=str)), found)
        except BaseException:
            self.close()
            raise

    def _continue(self, begun_with: Mapping[str, Any], found: Found) -> None:
        self._file.seek(0)
        head, end = line_of({BEGUN: begun_with}), 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                if number == 1 and not head.startswith(line):
                    self._compare(json_object(line, f"{self.path} line 1").get(BEGUN), begun_with)
                break
            where = f"{self.path} line {number}"
            record = json_object(line, where)
            if number == 1:
                self._compare(record.get(BEGUN), begun_with)
            else:
                found(record, where, end)
            end += len(line)
        self._file.truncate(end)
        if end == 0:
            self._write(head)

    def _compare(self, before: Any, now: Mapping[str, Any]) -> None:
        if not isinstance(before, dict):
            raise BadInput(f'{self.path} line 1: no "{BEGUN}": not a file that {self._what} has written')
        if changed := differences(before, now):
            raise BadInput(f"{self.path}: it was begun with {changed}: choose another place, or remove it")

    def append(self, record: Mapping[str, Any]) -> int:
        """One line more, and its place; it is on disk when this returns, as far as a killed process goes."""
        place = self._file.seek(0, os.SEEK_END)
        self._write(line_of(record))
        return place

    def _write(self, line: bytes) -> None:
        with naming(self.path):
            self._file.write(line)
            self._file.flush()

    def read(self, place: int) -> dict[str, Any]:
        self._file.seek(place)
        return json_object(self._file.readline(), str(self.path))

    def close(self) -> None:
        self._file.close()
