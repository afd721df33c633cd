"""What `generate` has played so far, on disk: one line per task, appended as its episodes end, continued after a kill.

From it follow the two files that are trained on: `NAME.jsonl` with the trajectories that are kept, `NAME.pairs.jsonl`
with the best against the worst of each task. Other filters need no episode to be played again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from envs.tasks.jsonl import json_object
from launch.stages.trajectories import Record, graded, is_solved, kept, pair_of
from rlsys.config import RecipeConfig
from rlsys.errors import BadInput

BEGUN = "begun_with"  # key of the first line: what must be the same for episodes to lie in one file


def store_path(output: Path) -> Path:
    return output.with_name(f"{output.name.removesuffix('.jsonl')}.played.jsonl")


def pairs_path(output: Path) -> Path:
    return output.with_name(f"{output.name.removesuffix('.jsonl')}.pairs.jsonl")


class TrajectoryStore:
    """The tasks that are done, by sequence. Only their places in the file are held in memory.

    tried: tasks of which nothing could be graded. They are not done, and their lines only tell why.
    """

    def __init__(self, path: Path, begun_with: Mapping[str, Any]) -> None:
        """Create or continue `path`. A torn last line is cut off.

        Raises BadInput where it was begun with something else, or where another process writes it.
        """
        self.path = path
        self.tried: set[int] = set()
        self._places: dict[int, int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise BadInput(f"{path}: cannot be written ({error.strerror})") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise BadInput(f"{path}: another process is writing it") from error
        try:
            self._continue(json.loads(json.dumps(begun_with, default=str)))
        except BaseException:
            self.close()
            raise

    def _continue(self, begun_with: Mapping[str, Any]) -> None:
        self._file.seek(0)
        head, end = line_of({BEGUN: begun_with}), 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                if number == 1 and not head.startswith(line):
                    self._compare(json_object(line, f"{self.path} line 1").get(BEGUN), begun_with)
                break
            record = json_object(line, f"{self.path} line {number}")
            if number == 1:
                self._compare(record.get(BEGUN), begun_with)
            elif not isinstance(record.get("sequence"), int) or not isinstance(record.get("trajectories"), list):
                raise BadInput(
                    f'{self.path} line {number}: no "sequence" with its "trajectories": '
                    "not a file that rlsys generate has written"
                )
            else:
                self._found(record, end)
            end += len(line)
        self._file.truncate(end)
        if end == 0:
            self._write(head)

    def _found(self, entry: Record, place: int) -> None:
        if graded(entry):
            self._places[entry["sequence"]] = place
        else:
            self.tried.add(entry["sequence"])

    def _compare(self, before: Any, now: Mapping[str, Any]) -> None:
        if not isinstance(before, dict):
            raise BadInput(f'{self.path} line 1: no "{BEGUN}": not a file that rlsys generate has written')
        changed = [
            f"{key}={before.get(key)!r}, not {now.get(key)!r}"
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise BadInput(f"{self.path}: it was begun with {'; '.join(changed)}: choose another place, or remove it")

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._places

    def add(self, entry: Record) -> None:
        """One task more; it is on disk when this returns, as far as a killed process goes."""
        place = self._file.seek(0, os.SEEK_END)
        self._write(line_of(entry))
        self._found(entry, place)

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()

    def entries(self, count: int) -> Iterator[Record]:
        """The tasks before number `count`, in order."""
        for sequence in sorted(sequence for sequence in self._places if sequence < count):
            self._file.seek(self._places[sequence])
            yield json_object(self._file.readline(), str(self.path))

    def close(self) -> None:
        self._file.close()


def line_of(record: Record) -> bytes:
    """Half a surrogate pair, which UTF-8 has no bytes for, comes out as its JSON escape."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def write_out(played: TrajectoryStore, output: Path, recipe: RecipeConfig, num_tasks: int) -> dict[str, float]:
    """Write what is kept of the first `num_tasks` tasks, and their pairs; each file appears whole. Returns counts."""
    counts: Counter[str] = Counter(tasks=0, trajectories=0, failed=0, solved=0, kept=0, pairs=0)
    total = 0.0
    places = (output, pairs_path(output))
    unfinished = [place.with_name(f".{place.name}.tmp") for place in places]
    with unfinished[0].open("wb") as answers, unfinished[1].open("wb") as pairs:
        for entry in played.entries(num_tasks):
            found = graded(entry)
            keeping, pair = kept(entry, recipe.generate, recipe.reward), pair_of(entry)
            answers.writelines(map(line_of, keeping))
            pairs.writelines([line_of(pair)] if pair is not None else [])
            counts["tasks"] += 1
            counts["trajectories"] += len(entry["trajectories"])
            counts["failed"] += len(entry["trajectories"]) - len(found)
            counts["solved"] += sum(is_solved(each, recipe.reward) for each in found)
            counts["kept"] += len(keeping)
            counts["pairs"] += pair is not None
            total += sum(each["reward"] for each in found)
        for file in (answers, pairs):
            file.flush()
            os.fsync(file.fileno())
    unfinished[1].rename(places[1])
    unfinished[0].rename(places[0])  # the output last: it says that all is done
    counts["ungraded_tasks"] = num_tasks - counts["tasks"]
    scored = counts["trajectories"] - counts["failed"]
    return dict(counts) | ({"mean_reward": round(total / scored, 4)} if scored else {})
