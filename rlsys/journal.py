"""The journal: an append-only account of every prompt, in the lineage of the weights that survive.

One JSON object per line, flushed to disk (fsync) at each step's end. A process that starts on a run opens a new
lineage; when it resumes from a checkpoint it keeps the rows before that checkpoint's mark and voids the others, because
the weights that they were trained into are gone. Reading applies those voids, so an audit sees what the surviving
weights have seen: each (stage, sequence) dispatched once, trained or filtered or failed once.

    {"event": "begin", "time": 1790131053.2, "keep": 412, "lineage": 1, "chain": "5d0c2f..."}
    {"event": "dispatch", "stage": "rl", "sequence": 64, "attempt": 0, "epoch": 0, "task": "...", "version": 3, ...}
    {"event": "outcome", "stage": "rl", "sequence": 64, "outcome": "trained", "step": 5, "lineage": 1, "chain": ...}

`chain` is a digest of the row and of the one before it, so that a changed or removed row shows (`rlsys.seals`). A
`seal` row holds the digest of a line of another file, or of a file.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from rlsys.errors import BadInput
from rlsys.files import naming, whole_lines
from rlsys.jsonl import decode, encode, json_object, kind_of
from rlsys.seals import append_chain_digest, follow
from rlsys.types import Ticket

Outcome = Literal["trained", "filtered", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    keep: int  # rows of earlier lineages before this one; later ones are void
    torn_bytes: int = 0
    seals: int = 0  # 1: this process seals checkpoints, models and its summary; an earlier rlsys did not
    lineage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    stage: str
    sequence: int
    attempt: int
    epoch: int
    task: str
    version: int
    level: str = ""
    lineage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    stage: str
    sequence: int
    outcome: Outcome
    step: int  # that took it; of a group that none took, the last one before: `split_late`
    lineage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    version: int
    step: int
    lineage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthNote:
    """Something that is wrong with a stage, from this step on (`launch/driver/observe/health.py`)."""

    stage: str
    step: int
    says: str
    lineage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What stands in another file of the run: Sealed(name="metrics.jsonl 12", digest="90ab...")."""

    name: str
    digest: str
    lineage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A row of an event that this version does not know."""

    lineage: int = 0


Row = Begin | Dispatched | Finished | Published | HealthNote | Sealed | Other
EVENTS: dict[str, type[Row]] = {"begin": Begin, "dispatch": Dispatched, "outcome": Finished, "publish": Published}
EVENTS |= {"health": HealthNote, "seal": Sealed}
NAMES = {kind: event for event, kind in EVENTS.items()}
BEGIN = b'"begin"'  # in a line that may be of that event
HEAD = re.compile(  # of a row that a prompt begins or ends with, as it is written here
    rb'\{"event": "(?:dispatch|outcome)", "time": [\d.]+, "stage": "([ -!#-\[\]-~]+)", "sequence": (\d{1,18}), '
    rb'(?:"attempt": |"outcome": "(\w+)", "step": (\d{1,18}), )'
)
MOST_PENDING = 1 << 16  # bytes of rows that wait for the next commit
REPEATED = {"stage", "task", "level", "outcome"}  # texts that many rows have
FIELDS = {  # of each kind: name, default and type of its fields
    kind: [(field.name, field.default, int if field.type == "int" else str) for field in fields(kind)]
    for kind in (*EVENTS.values(), Other)
}


class Journal:
    """The only writer. `mark` counts the rows written so far, over all lineages; `chain` is that of the last one."""

    def __init__(self, path: Path, *, keep: int | None = None) -> None:
        """Open `path` and begin a lineage. `keep` is a checkpoint's mark: later rows of earlier lineages are void.

        Raises BadInput where rows before the mark are lost: what the weights have seen is then unknown.
        """
        self.path = path
        self.mark, lineage, self.chain, size = _scan_file(path)
        if keep is not None and keep > self.mark:
            raise BadInput(
                f"it has {self.mark} rows, and the checkpoint was saved after {keep}: restore the file, go "
                "on from an older checkpoint (--resume-from), or begin another run with "
                "model.path=CHECKPOINT/hf",
                where=path,
            )
        torn = path.stat().st_size - size if path.exists() else 0
        if torn:  # a crash mid-write: it was never committed
            os.truncate(path, size)
        self.lineage = 1 + lineage
        self._file = path.open("ab", buffering=0)
        self._pending = bytearray()  # rows that are not in the file yet: what a full disk refuses is written later
        self._lock = threading.RLock()  # a checkpoint is sealed by the thread that writes it
        self._begin(self.mark if keep is None else keep, torn)

    def go_back(self, keep: int) -> None:
        """Begin another lineage within this process: what was written since that mark is void. Nothing is read."""
        with self._lock:
            self.lineage += 1
            self._begin(keep)

    def _begin(self, keep: int, torn_bytes: int = 0) -> None:
        self._write(Begin(keep=keep, torn_bytes=torn_bytes, seals=1))
        self.commit()

    def _write(self, row: Row) -> None:
        head = {"event": NAMES[type(row)], "time": round(time.time(), 3)}
        with self._lock, naming(self.path):
            line, self.chain = append_chain_digest(
                json.dumps(head | encode(replace(row, lineage=self.lineage))), self.chain
            )
            self._pending += line.encode() + b"\n"
            self.mark += 1
            if len(self._pending) > MOST_PENDING:
                self._flush()

    def end(self) -> tuple[int, str]:
        """(mark, chain) of the same moment: what a checkpoint notes."""
        with self._lock:
            return self.mark, self.chain

    def dispatch(self, stage: str, ticket: Ticket) -> None:
        row = Dispatched(
            stage=stage,
            sequence=ticket.sequence,
            attempt=ticket.attempt,
            epoch=ticket.epoch,
            task=ticket.task.task_id,
            version=ticket.start_version,
            level=ticket.level,
        )
        self._write(row)

    def outcome(self, stage: str, sequence: int, outcome: Outcome, *, step: int) -> None:
        self._write(Finished(stage=stage, sequence=sequence, outcome=outcome, step=step))

    def publish(self, version: int, *, step: int) -> None:
        self._write(Published(version=version, step=step))

    def note(self, stage: str, step: int, says: str) -> None:
        self._write(HealthNote(stage=stage, step=step, says=says))

    def seal(self, name: str, digest: str) -> None:
        """It outlives this process at once, and the machine from the next commit on."""
        self._write(Sealed(name=name, digest=digest))
        self._flush()

    def _flush(self) -> None:
        with self._lock, naming(self.path):  # two threads that flush at once would change the order of the rows
            while self._pending:
                written = self._file.write(self._pending)
                del self._pending[:written]

    def commit(self) -> None:
        """On disk, whatever happens next."""
        self._flush()
        with naming(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with self._lock:
            self.commit()
            self._file.close()


def _scan_file(path: Path) -> tuple[int, int, str, int]:
    """(rows, the last lineage or -1, the last row's chain, bytes up to a torn row), in one pass. What is as it was
    written is not taken apart. Raises BadInput with the line that is damaged."""
    rows, lineage, chain, size = 0, -1, "", 0
    for rows, line in whole_lines(path):
        link = follow(line, chain)
        chain, size = link.chain, size + len(line)
        if not (link.chain and link.fits) or BEGIN in line:
            lineage = max(lineage, read_row(line, f"{path} line {rows}").lineage)
    return rows, lineage, chain, size


def read_journal(path: Path) -> list[Row]:
    """All rows, the void ones too, but not a torn last one. Raises BadInput with the line that is damaged."""
    return [read_row(line, f"{path} line {number}") for number, line in whole_lines(path)]


def read_surviving(path: Path) -> Iterator[Row]:
    """`surviving_rows` of a journal that may be long, one at a time. Raises BadInput with the line that is damaged."""
    for number, line in _surviving_lines(path):
        yield read_row(line, f"{path} line {number}")


def _surviving_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that no later `Begin` made void. The file is read twice: which ones those are is known at its end."""
    begins = ((number, read_row(line, f"{path} line {number}")) for number, line in whole_lines(path) if BEGIN in line)
    lines, position = whole_lines(path), 0
    for alive in _surviving_slices((number - 1, row) for number, row in begins):
        yield from islice(lines, alive.start - position, alive.stop and alive.stop - position)
        position = alive.stop or 0


def _surviving_slices(rows: Iterable[tuple[int, Row]]) -> list[slice]:
    """Which rows survive, in order, of these with their places, among which is every `Begin`."""
    alive = [slice(0, None)]
    for place, row in rows:
        if isinstance(row, Begin):
            keep = min(place, row.keep)
            alive = [slice(stretch.start, min(stretch.stop or keep, keep)) for stretch in alive if stretch.start < keep]
            alive.append(slice(place, None))
    return alive


def read_row(line: bytes, where: str) -> Row:
    """An event of a later rlsys stands for itself alone: it counts for marks, and its fields are not ours to read."""
    value = json_object(line, where)
    event = value.get("event")
    if not isinstance(event, str):
        raise BadInput(f"no row of a journal: event is {kind_of(event)}", where=where, expected="a text")
    kind = EVENTS.get(event, Other)
    values = {name: value.get(name, default) for name, default, _ in FIELDS[kind]}
    values |= {name: sys.intern(values[name]) for name in REPEATED & values.keys() if type(values[name]) is str}
    if all(type(values[name]) is expected for name, _, expected in FIELDS[kind]):
        record: Row = kind(**values)
        return record
    for field in fields(kind):
        field_value = value.get(field.name, field.default)
        expected = "a number" if field.type == "int" else "a text"
        if field_value is MISSING or kind_of(field_value) != expected:
            name = "nothing" if field_value is MISSING else kind_of(field_value)
            raise BadInput(f"no row of a journal: {field.name} is {name}", where=where, expected=expected)
    row: Row = decode(kind, value)
    return row


def surviving_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that led to the weights that exist now."""
    return [row for alive in _surviving_slices(enumerate(rows)) for row in rows[alive]]


def drop_later_outcomes(rows: Iterable[Row], step: int) -> list[Row]:
    """Without the outcomes of later steps: a step in which a run failed has no row of metrics, and is taken again."""
    return [row for row in rows if not (isinstance(row, Finished) and row.step > step)]


def split_late(rows: Iterable[Row]) -> tuple[list[Finished], list[Finished]]:
    """(outcomes that the process which took their step wrote, outcomes that a later one added to that step).

    rows: `surviving_rows`. A process that goes on from a checkpoint accounts for groups without signal that were played
    before it and that no step had taken. Their step is the last one before it, whose row is written, and does not count
    them.
    """
    first: dict[int, int] = {}
    on_time: list[Finished] = []
    late: list[Finished] = []
    for row in rows:
        if isinstance(row, Finished):
            (on_time if first.setdefault(row.step, row.lineage) == row.lineage else late).append(row)
    return on_time, late


PROMPTS = ("dispatched", "trained", "failed", "filtered", "in_flight")  # of a ledger and of a summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every prompt of the surviving lineage, once: dispatched = trained + filtered + failed + in_flight."""

    dispatched: int
    trained: int
    filtered: int
    failed: int
    in_flight: int
    problems: tuple[str, ...]  # what an auditor must hear of; empty when the account closes


def count_prompts(path: Path, step: int) -> dict[str, int]:
    """`PROMPTS` of a `ledger` of the rows that survive until this step, without problems: a byte a prompt."""
    codes: dict[str, bytearray] = defaultdict(bytearray)  # by stage, of each sequence: 0, begun, or its outcome
    begun_code, outcomes = 1, {"trained": 2, "filtered": 3, "failed": 4}
    most = path.stat().st_size  # sequences are numbered from 0, and each of them has a row
    for number, line in _surviving_lines(path):
        head = HEAD.match(line)
        if head is not None:  # a third of the time
            stage, sequence, ended, at = head[1].decode(), int(head[2]), head[3], int(head[4] or 0)
            outcome = ended.decode() if ended is not None else None
        else:
            row = read_row(line, f"{path} line {number}")
            if not isinstance(row, Dispatched | Finished):
                continue
            stage, sequence = row.stage, row.sequence
            outcome, at = (row.outcome, row.step) if isinstance(row, Finished) else (None, 0)
        if not 0 <= sequence < most:
            continue
        stage_codes = codes[stage]
        if outcome is None:
            stage_codes.extend(bytes(max(0, sequence + 1 - len(stage_codes))))
            stage_codes[sequence] = max(stage_codes[sequence], begun_code)
        elif at <= step and sequence < len(stage_codes):
            stage_codes[sequence] = outcomes.get(outcome, begun_code)
    counts = {name: sum(stage_codes.count(code) for stage_codes in codes.values()) for name, code in outcomes.items()}
    in_flight = sum(stage_codes.count(begun_code) for stage_codes in codes.values())
    return {"dispatched": in_flight + sum(counts.values()), **counts, "in_flight": in_flight}


def ledger(rows: Iterable[Row]) -> Ledger:
    """Close the account of surviving rows."""
    dispatched: dict[tuple[str, int], tuple[int, str]] = {}
    outcomes: dict[tuple[str, int], Outcome] = {}
    in_epoch: Counter[tuple[str, int, str]] = Counter()
    problems: list[str] = []
    for row in rows:
        if isinstance(row, Dispatched):
            key, draw = (row.stage, row.sequence), (row.epoch, row.task)
            if key not in dispatched:
                in_epoch[(row.stage, *draw)] += 1
            elif dispatched[key] != draw:
                problems.append(f"{key} was dispatched as {dispatched[key]} and as {draw}")
            dispatched[key] = draw
        elif isinstance(row, Finished):
            key = (row.stage, row.sequence)
            if key in outcomes:
                problems.append(f"{key} was {outcomes[key]} and then {row.outcome}")
            if key not in dispatched:
                problems.append(f"{key} was {row.outcome} without being dispatched")
            outcomes[key] = row.outcome
    problems += [f"task {task} of epoch {epoch} came {n} times" for (_, epoch, task), n in in_epoch.items() if n > 1]
    for stage in {stage for stage, _ in dispatched}:
        sequences = {sequence for name, sequence in dispatched if name == stage}
        if missing := sorted(set(range(max(sequences) + 1)) - sequences):
            problems.append(f"{stage}: {len(missing)} sequences were skipped, the first is {missing[0]}")
    closed = list(outcomes.values())
    return Ledger(
        dispatched=len(dispatched),
        trained=closed.count("trained"),
        filtered=closed.count("filtered"),
        failed=closed.count("failed"),
        in_flight=len(dispatched.keys() - outcomes.keys()),
        problems=tuple(problems),
    )
