"""What a teacher has said: one line an answer, appended and never changed, so that nothing is paid for twice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.services.endpoint import Choice
from rlsys.errors import BadInput
from rlsys.files import naming
from rlsys.jsonl import decode, json_object, line_of


class AnswerLog:
    """By what was asked. Only places are held in memory. One process at a time may write a file."""

    def __init__(self, path: Path) -> None:
        """Create or continue `path`; a torn last line is cut off. Raises BadInput for another file."""
        self._path = path
        self._places: dict[str, int] = {}
        with naming(path):
            self._file = path.open("a+b")
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            key = json_object(line, f"{path} line {number}").get("key")
            if not isinstance(key, str):
                raise BadInput(f'{path} line {number}: no "key": not a file that rlsys generate has written')
            self._places[key] = end
            end += len(line)
        self._file.truncate(end)

    def get(self, key: str) -> Choice | None:
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        choice: Choice = decode(Choice, json_object(self._file.readline(), str(self._path)))
        return choice

    def add(self, key: str, choice: Choice, about: Mapping[str, Any]) -> None:
        """It is on disk when this returns, as far as a killed process goes. about: for people who read it."""
        self._places[key] = self._file.seek(0, os.SEEK_END)
        with naming(self._path):
            self._file.write(line_of({"key": key, **about, **asdict(choice)}))
            self._file.flush()

    def close(self) -> None:
        self._file.close()
