"""The episodes of a run as files, one trajectory a line, and their index, one row an episode: `trajectories/`.

A file is in its place before its rows are in the index, so that a row never leads to nothing. What is killed in between
lacks the rows, and a reader of the index makes them from the file, with the same function.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlsys.config.envs import env_of
from rlsys.config.output import TrajectoriesConfig
from rlsys.episode_index import INDEX, SOLVED_BY, EpisodePlace, index_row
from rlsys.files import naming, pack_lines, whole_file
from rlsys.jsonl import json_line
from rlsys.records import make_record, to_json
from rlsys.samples import SampleKey, advantages_by_turn
from rlsys.seals import LENGTH
from rlsys.types import Floats, Group, Trajectory

HEAD = re.compile(rb'\{"file": "([^"\\]*)", "offset": \d+, "length": \d+, "step": (\d+), ')  # of a row of the index


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What the episodes of one file were played for."""

    step: int
    stage: str
    play: str | None = None  # of an evaluation: "greedy", "hotpotqa/greedy"
    when: str | None = None  # of an evaluation: "before", "during", "after", "eval"
    solved_by: Mapping[str, float] = field(default_factory=lambda: SOLVED_BY)  # of `envs.rewards.solved_thresholds`
    solved_by_env: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # the same of several environments

    def row_of(self, written: Mapping[str, Any], file: str, offset: int, length: int) -> dict[str, Any]:
        """Of the index. written: the JSON of an episode, whose line has so many bytes after so many others."""
        name = env_of(str(written["task"]["task_id"]))
        place = EpisodePlace(
            file=file, offset=offset, length=length, step=self.step, stage=self.stage, play=self.play, when=self.when
        )
        return index_row(written, place, self.solved_by_env.get(name, self.solved_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredit:
    """What an update gave single tokens, where its algorithm does that."""

    found: Mapping[SampleKey, Floats] = field(default_factory=dict)  # `rlsys.batch.UpdateReport.advantages`
    version: int = 0  # that was trained
    max_token_lag: int | None = None

    def of(self, trajectory: Trajectory, sequence: int) -> list[Floats]:
        """By turn; empty where nothing is known of it."""
        keys = ((sequence, trajectory.sibling, number) for number in range(len(trajectory.turns)))
        parts = {key[2]: self.found[key] for key in keys if key in self.found}
        if not parts:
            return []
        return advantages_by_turn(trajectory, parts, version=self.version, max_token_lag=self.max_token_lag)


NO_CREDIT = TokenCredit()


class EpisodeFiles:
    """The only writer of a run's `trajectories/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()  # a step's episodes and an evaluation's come from threads
        self._indexed: set[str] = set()  # files that have rows

    def save(
        self,
        name: str,
        groups: Iterable[Group],
        advantages: Mapping[tuple[int, int], float],
        config: TrajectoriesConfig,
        played: Played,
        credit: TokenCredit = NO_CREDIT,
    ) -> str:
        """All of these groups; otherwise as `begin` and what it returns."""
        writer = self.begin(name, advantages, config, played, credit)
        try:
            for group in groups:
                writer.add(group)
            return writer.finish()
        finally:
            writer.discard()

    def begin(
        self,
        name: str,
        advantages: Mapping[tuple[int, int], float],
        config: TrajectoriesConfig,
        played: Played,
        credit: TokenCredit = NO_CREDIT,
    ) -> EpisodeWriter:
        """In place of a file of that name, once it is finished. `advantages` by (sequence, sibling)."""
        return EpisodeWriter(self.folder / name, advantages, config, played, credit, self.index)

    def rewind(self, step: int) -> None:
        """Drop the rows of later steps, and a last one torn by a crash."""
        with self._lock:
            self._rewrite(lambda file, at: at <= step)

    def index(self, file: str, other: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows of this file, in place of those that it or the other one has of an earlier time."""
        path, text = self.folder / INDEX, "".join(f"{json.dumps(row)}\n" for row in rows)
        with self._lock:
            if self._indexed.intersection((file, other)):  # of a step that was taken before
                self._rewrite(lambda row_file, at: row_file not in (file, other))
            self._indexed.add(file)
            with naming(path), path.open("a") as index:
                index.write(text)

    def _rewrite(self, keeps: Callable[[str, int], bool]) -> None:
        """Keep the rows for which it says so, of their file and step; nothing is written where all of them stay."""
        path = self.folder / INDEX
        self._indexed = set()
        if not path.exists():
            return
        stays = bytearray()  # one a row: there may be millions
        with path.open("rb") as lines:
            for line in lines:
                head = _head(line)
                stays.append(head is not None and keeps(*head))
                if head is not None and stays[-1]:
                    self._indexed.add(head[0])
        if not all(stays):
            with whole_file(path) as target, path.open("rb") as lines:
                target.writelines(line for line, stay in zip(lines, stays, strict=True) if stay)


class EpisodeWriter:
    """One file, a line for each trajectory as it comes: no more than one of them is in memory."""

    def __init__(
        self,
        path: Path,
        advantages: Mapping[tuple[int, int], float],
        config: TrajectoriesConfig,
        played: Played,
        credit: TokenCredit,
        index: Callable[[str, str, Iterable[Mapping[str, Any]]], None],
    ) -> None:
        self._plain, self._packed = (path.with_name(f"{path.name}.{end}") for end in ("jsonl", "jsonl.gz"))
        self._advantages, self._config, self._played, self._credit = advantages, config, played, credit
        self._index, self._rows, self._seal, self._size = index, list[dict[str, Any]](), hashlib.sha256(), 0
        self._temporary = self._plain.with_name(f".{self._plain.name}.tmp")
        self._finishing = False
        with naming(self._plain):
            self._lines = self._temporary.open("w+b")

    def add(self, group: Group) -> None:
        for episode in group.trajectories:
            written = to_json(
                make_record(
                    episode,
                    group,
                    advantage=self._advantages.get((group.ticket.sequence, episode.sibling)),
                    logprobs=self._config.logprobs,
                    token_advantages=self._credit.of(episode, group.ticket.sequence) if self._config.logprobs else (),
                )
            )
            line = json_line(written)
            self._rows.append(self._played.row_of(written, self._plain.name, self._size, len(line)))
            with naming(self._plain):
                self._lines.write(line)
            self._seal.update(line)
            self._size += len(line)

    def finish(self) -> str:
        """In its place, and in the index. Returns the digest of the lines (`rlsys.seals`)."""
        self._finishing, limit = True, self._config.compress_mb
        plain = limit is None or self._size <= limit * 2**20
        place, other = (self._plain, self._packed) if plain else (self._packed, self._plain)
        with self._lines, naming(place):
            try:
                self._lines.flush()
                if plain:
                    os.fsync(self._lines.fileno())
                    self._temporary.rename(place)
                else:
                    self._lines.seek(0)
                    with whole_file(place) as target:
                        packed = pack_lines(self._lines, [row["length"] for row in self._rows], target)
                    self._rows = [row | {"packed": at} for row, at in zip(self._rows, packed, strict=True)]
            finally:
                self._temporary.unlink(missing_ok=True)
        other.unlink(missing_ok=True)  # of a step that is taken again
        self._index(place.name, other.name, (row | {"file": place.name} for row in self._rows))
        return self._seal.hexdigest()[:LENGTH]

    def discard(self) -> None:
        """What an error has left; nothing of what is finished, or being finished in another thread."""
        if not self._finishing:
            self._lines.close()
            self._temporary.unlink(missing_ok=True)


def _head(line: bytes) -> tuple[str, int] | None:
    """The file and the step of a row; None of a torn one."""
    match = HEAD.match(line) if line.endswith(b"\n") else None
    return None if match is None else (match[1].decode("ascii", "replace"), int(match[2]))
