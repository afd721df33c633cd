"""The trajectories of a page as it holds them: columns to list and filter by, and blocks of lines for the rest.

A block is decompressed when one of its lines is looked at. Which lines a block has is known from the index alone, so a
server makes blocks when they are asked for, and a file has them all.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from launch.tools.report.kept import NONE, EpisodeListing, Room, SelectedRows, select_rows, wrong_answer_threshold

BLOCK = 512 * 1024  # bytes of lines
TEXT = 300  # characters of a text of a column
TEXTS = ("file", "stage", "play", "when", "task_id", "end", "failure", "worker")
FLAGS = ("correct", "truncated")
WHOLE = (
    *("step", "sequence", "sibling", "attempt", "tokens", "turns", "calls"),
    *("first_version", "last_version"),
)
REAL = ("reward", "advantage", "seconds")


class Episodes(EpisodeListing, Protocol):
    """`launch.run_dir.episodes.Episodes`: of one run."""

    @property
    def folder(self) -> Path: ...

    def lines(self, chosen: Sequence[int]) -> Iterator[tuple[int, bytes]]: ...


@dataclass(frozen=True, slots=True)
class Block:
    run: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Pack:
    runs: Sequence[Episodes]
    kept: Sequence[SelectedRows]  # of each run
    blocks: Sequence[Block]

    def lines(self, number: int) -> list[str]:
        """Of a block, a line of JSON for each of its rows."""
        block = self.blocks[number]
        return list(_match_lines(block.rows, self.runs[block.run].lines(block.rows)))

    def lines_by_block(self) -> Iterator[list[str]]:
        """The same of all blocks in their order: each file is read once, from its beginning to its end."""
        for run, blocks in groupby(self.blocks, key=lambda block: block.run):
            rows = self.kept[run].rows
            lines = _match_lines(rows, self.runs[run].lines(rows))
            yield from (list(islice(lines, len(block.rows))) for block in blocks)

    def index(self) -> dict[str, Any]:
        """Columns of all rows, and where the blocks begin."""
        columns: dict[str, list[Any]] = {"run": []}
        for run, (episodes, pick) in enumerate(zip(self.runs, self.kept, strict=True)):
            columns["run"] += [run] * len(pick.rows)
            for name, values in _columns_as_json(episodes, pick.rows):
                columns.setdefault(name, []).extend(values)
        reasons = sum((Counter(pick.reasons) for pick in self.kept), Counter())
        sizes = [len(block.rows) for block in self.blocks]
        return {
            "count": sum(sizes),
            "total": sum(pick.total for pick in self.kept),
            "reasons": list(reasons.items()),
            "paid": min(map(wrong_answer_threshold, self.runs), default=0.0),
            "starts": np.cumsum([0, *sizes])[:-1].tolist(),
            "columns": columns,
        }


def make_pack(runs: Sequence[Episodes], room: Room | None) -> Pack:
    """room: for the trajectories of all runs together, None for all."""
    sizes = [float(room.sizes(episodes).sum()) for episodes in runs] if room is not None else []
    rooms = (
        [None] * len(runs) if room is None else [replace(room, most=share) for share in divide_room(sizes, room.most)]
    )
    picks = [select_rows(episodes, run_room) for episodes, run_room in zip(runs, rooms, strict=True)]
    return Pack(
        runs, picks, [block for run, pick in enumerate(picks) for block in _cut_blocks(run, runs[run], pick.rows)]
    )


def divide_room(sizes: Sequence[float], room: float) -> list[float]:
    """How much of it each run gets: the small ones what they take, and the others the same."""
    by_run, remaining = dict.fromkeys(range(len(sizes)), 0.0), room
    for served, run in enumerate(sorted(by_run, key=sizes.__getitem__)):
        by_run[run] = min(sizes[run], remaining / (len(sizes) - served))
        remaining -= by_run[run]
    return list(by_run.values())


def _match_lines(rows: Sequence[int], lines: Iterator[tuple[int, bytes]]) -> Iterator[str]:
    """A line for each row, of which some may not have been found. Both in ascending order."""
    ahead = next(lines, None)
    for row in rows:
        if ahead is None or ahead[0] != row:
            yield json.dumps({"unreadable": "its file has changed, or cannot be read"})
        else:
            yield clean_line(ahead[1])
            ahead = next(lines, None)


def _cut_blocks(run: int, episodes: Episodes, rows: Sequence[int]) -> Iterator[Block]:
    """Whole lines, until they are BLOCK or more."""
    begin, size = 0, 0
    for at, row in enumerate(rows):
        size += int(episodes.columns["length"][row])
        if size >= BLOCK or at == len(rows) - 1:
            yield Block(run, rows[begin : at + 1])
            begin, size = at + 1, 0


def _columns_as_json(episodes: Episodes, rows: Sequence[int]) -> Iterator[tuple[str, list[Any]]]:
    """By name, the values as JSON has them."""
    at = np.asarray(rows, np.int64)
    for name in TEXTS:
        texts = [shorten(text) for text in episodes.texts[name]]
        yield name, [None if value == NONE else texts[value] for value in episodes.columns[name][at].tolist()]
    for name in FLAGS:
        yield name, [None if value == NONE else value for value in episodes.columns[name][at].tolist()]
    for name in WHOLE:
        values = episodes.columns[name][at]
        yield name, [None if value == NONE else value for value in values.tolist()]
    for name in REAL:
        yield name, [round(value, 6) if math.isfinite(value) else None for value in episodes.columns[name][at].tolist()]


def shorten(text: str, most: int = TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"


def clean_line(line: bytes) -> str:
    """The line as JSON that a browser reads: valid, finite, and in one line. What is no JSON is named."""
    try:
        value = json.loads(line.decode("utf-8", "replace"))
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return dump_line(value)
    except (ValueError, RecursionError) as error:
        return json.dumps({"unreadable": f"{type(error).__name__}: {error}", "line": line[:2000].decode("latin-1")})


def dump_line(value: Any) -> str:
    """In one line; NaN and infinities as their names, which JSON has no numbers for."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        value = _without_infinities(value)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def _without_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _without_infinities(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(child) for child in value]
    return value


def tokens_in(lines: Iterable[str]) -> set[int]:
    """The ids of the tokens that lines of trajectories name."""
    token_ids: set[int] = set()
    for line in lines:
        turns = json.loads(line).get("token_ids")
        for turn in turns if isinstance(turns, list) else ():
            token_ids.update(token for token in (turn if isinstance(turn, list) else ()) if type(token) is int)
    return token_ids


def compress(text: str) -> bytes:
    """Of the same text always the same bytes."""
    return gzip.compress(text.encode(), 6, mtime=0)


def embed_in_html(text: str) -> str:
    """Text that can stand in a page: no character of base64 means anything to HTML."""
    return base64.b64encode(compress(text)).decode()
