"""The episodes of a run as files, one trajectory a line, and their index, one row an episode: `trajectories/`.

A file is in its place before its rows are in the index, so that a row never leads to nothing. What is killed in between
lacks the rows, and a reader of the index makes them from the file, with the same function.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlsys.config.envs import env_of
from rlsys.config.output import TrajectoriesConfig
from rlsys.episode_index import INDEX, SOLVED_BY, EpisodePlace, index_row
from rlsys.files import naming, replace_file, whole_file
from rlsys.jsonl import line_of
from rlsys.records import record_of, to_json
from rlsys.samples import SampleKey, advantages_by_turn
from rlsys.seals import digest_of
from rlsys.types import Floats, Group, Trajectory

GZIP_LEVEL = 3  # twice as fast as the usual 6, for a tenth more bytes
HEAD = re.compile(rb'\{"file": "([^"\\]*)", "offset": \d+, "length": \d+, "step": (\d+), ')  # of a row of the index


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What the episodes of one file were played for."""

    step: int
    stage: str
    play: str | None = None  # of an evaluation: "greedy", "hotpotqa/greedy"
    when: str | None = None  # of an evaluation: "before", "during", "after", "eval"
    solved_by: Mapping[str, float] = field(default_factory=lambda: SOLVED_BY)  # as `envs.rewards.solved_by` has it
    solved_by_env: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # the same of several environments


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
        """One trajectory a line, in place of a file of that name. `advantages` by (sequence, sibling).

        Returns the digest of the lines (`rlsys.seals`).
        """
        records = (
            record_of(
                each,
                group,
                advantage=advantages.get((group.ticket.sequence, each.sibling)),
                logprobs=config.logprobs,
                token_advantages=credit.of(each, group.ticket.sequence) if config.logprobs else (),
            )
            for group in groups
            for each in group.trajectories
        )
        written = [to_json(each) for each in records]
        lines = [line_of(each) for each in written]
        content = b"".join(lines)
        plain, packed = (self.folder / f"{name}.{end}" for end in ("jsonl", "jsonl.gz"))
        if config.compress_mb is None or len(content) <= config.compress_mb * 2**20:
            place, other, stored = plain, packed, content
        else:
            place, other, stored = packed, plain, gzip.compress(content, GZIP_LEVEL, mtime=0)
        replace_file(place, stored)
        other.unlink(missing_ok=True)  # of a step that is taken again
        self._index((place.name, other.name), rows_of(place.name, written, list(map(len, lines)), played))
        return digest_of(content)

    def rewind(self, step: int) -> None:
        """Drop the rows of later steps, and a last one torn by a crash."""
        with self._lock:
            self._rewrite(lambda file, at: at <= step)

    def _index(self, files: Sequence[str], rows: Iterator[dict[str, Any]]) -> None:
        path, text = self.folder / INDEX, "".join(f"{json.dumps(row)}\n" for row in rows)
        with self._lock:
            if self._indexed.intersection(files):  # of a step that was taken before
                self._rewrite(lambda file, at: file not in files)
            self._indexed.add(files[0])
            with naming(path), path.open("a") as file:
                file.write(text)

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
            with whole_file(path) as kept, path.open("rb") as lines:
                kept.writelines(line for line, stay in zip(lines, stays, strict=True) if stay)


def rows_of(
    file: str, written: Sequence[Mapping[str, Any]], lengths: Sequence[int], played: Played
) -> Iterator[dict[str, Any]]:
    """Of the index. written: the JSON of each episode, whose line has so many bytes."""
    place = EpisodePlace(
        file=file, offset=0, length=0, step=played.step, stage=played.stage, play=played.play, when=played.when
    )
    offset = 0
    for episode, length in zip(written, lengths, strict=True):
        name = env_of(str(episode["task"]["task_id"]))
        yield index_row(
            episode,
            replace(place, offset=offset, length=length),
            played.solved_by_env.get(name, played.solved_by),
        )
        offset += length


def _head(line: bytes) -> tuple[str, int] | None:
    """The file and the step of a row; None of a torn one."""
    found = HEAD.match(line) if line.endswith(b"\n") else None
    return None if found is None else (found[1].decode("ascii", "replace"), int(found[2]))
