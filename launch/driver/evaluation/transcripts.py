"""The episodes of an evaluation on disk, one a line, as they end: what a killed one is continued from.

    FOLDER/begun.json  FOLDER/greedy.jsonl  FOLDER/hotpotqa-sampled.jsonl

Each file of a play is read by `rlsys score --input`; the answers of a model at an address, which lie there too, are no
transcripts. All samples of a task are written at once; a task of which a kill left only some, or of which nothing could
be graded, is played again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO, Any

from launch.driver.run.rundir import open_locked
from rlsys.errors import BadInput, differences
from rlsys.files import naming, replace_file
from rlsys.jsonl import json_line, json_object
from rlsys.records import TrajectoryRecord, make_record, read_trajectory, to_json
from rlsys.types import Group

BEGUN = "begun.json"


def file_name(play: str) -> str:
    """ "hotpotqa/greedy" lies in hotpotqa-greedy.jsonl."""
    return f"{play.replace('/', '-')}.jsonl"


def records_of(group: Group) -> list[TrajectoryRecord]:
    return [make_record(trajectory, group) for trajectory in group.trajectories]


class Transcripts:
    """Of one evaluation. By play and task what was played; without the tokens, which are in the files."""

    def __init__(self, folder: Path, begun_with: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        """Create or continue `folder`. sizes: by play the samples of a task.

        Raises BadInput where it was begun with something else, or where another process writes it.
        """
        self.folder = folder
        self.played: dict[str, dict[int, list[TrajectoryRecord]]] = {play: {} for play in sizes}
        self._lock = open_locked(folder / ".lock", "wb", str(folder), "another process is writing it")
        self._files: dict[str, IO[bytes]] = {}
        try:
            self._begin(json.loads(json.dumps(begun_with, default=str)))
            for play, size in sizes.items():
                path = folder / file_name(play)
                self._continue(path, play, size)
                self._files[play] = path.open("ab")
        except BaseException:
            self.close()
            raise

    def _begin(self, now: Mapping[str, Any]) -> None:
        path = self.folder / BEGUN
        if not path.is_file():
            replace_file(path, json.dumps(now, indent=1) + "\n")
            return
        if changed := differences(json_object(path.read_bytes(), str(path)), now):
            raise BadInput(f"{self.folder} was begun with {changed}: leave --resume out to begin again", key="--resume")

    def _continue(self, path: Path, play: str, size: int) -> None:
        """Read what is whole; what is not is taken out of the file."""
        if not path.is_file():
            return
        lines: list[tuple[int, bytes]] = []
        by_sequence: dict[int, list[TrajectoryRecord]] = defaultdict(list)
        content = path.read_bytes()
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            if line.endswith(b"\n"):
                where = f"{path} line {number}"
                record = without_tokens(read_trajectory(json_object(line, where), where))
                by_sequence[record.sequence].append(record)
                lines.append((record.sequence, line))
        self.played[play] = {
            sequence: records
            for sequence, records in by_sequence.items()
            if len(records) == size and any(record.reward is not None for record in records)
        }
        complete_lines = b"".join(line for sequence, line in lines if sequence in self.played[play])
        if complete_lines != content:
            replace_file(path, complete_lines)

    def add(self, play: str, group: Group) -> None:
        """All samples of one task; on disk when this returns, as far as a killed process goes."""
        records = records_of(group)
        file = self._files[play]
        with naming(Path(file.name)):
            file.write(b"".join(json_line(to_json(record)) for record in records))
            file.flush()
        self.played[play][group.ticket.sequence] = [without_tokens(record) for record in records]

    def records(self, play: str) -> list[TrajectoryRecord]:
        """Of one play, in the order of its tasks."""
        return in_order(self.played[play])

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._lock.close()


def in_order(played: Mapping[int, Sequence[TrajectoryRecord]]) -> list[TrajectoryRecord]:
    return [record for sequence in sorted(played) for record in played[sequence]]


def without_tokens(record: TrajectoryRecord) -> TrajectoryRecord:
    return replace(record, token_ids=())


def transcript_folder(output: Path, *, resume: bool) -> Path:
    """`result.transcripts` next to `result.json`, or the next free `result.transcripts-2`; to resume, the last one.

    What an earlier evaluation left is never written over. Raises BadInput where there is nothing to resume.
    """
    base = output.with_suffix(".transcripts")
    names = (base if number == 1 else base.with_name(f"{base.name}-{number}") for number in count(1))
    last: Path | None = None
    for name in names:
        if not name.exists():
            if resume and last is None:
                raise BadInput(f"there is no {base.name} next to {output} to resume", key="--resume")
            return last if resume and last is not None else name
        last = name
    raise AssertionError("there is always a next number")
