"""What an audit reads of a run directory: every line that was sealed, with its digest, besides what reports read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from launch.driver.checkpoints.best import BEST
from launch.driver.checkpoints.checkpoint import FOLDER, read_state, step_of
from launch.driver.checkpoints.proof import CHECKPOINTS, GONE, SealBook, seal_book
from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.names import EVALUATIONS, METRICS, evaluation_line_name, metrics_line_name
from launch.run_dir.rows import LoggedRow, parse_row
from launch.run_dir.state import OVER, State
from rlsys.errors import BadInput
from rlsys.files import whole_lines
from rlsys.journal import Begin, Finished, Ledger, Other, Row, Sealed, ledger, read_row, split_late, surviving_rows
from rlsys.jsonl import json_object
from rlsys.seals import Link, digest_of, follow

JOURNAL, SUMMARY = "journal.jsonl", "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLine:
    """A line of metrics.jsonl or evaluations.jsonl."""

    name: str  # under which the journal has its digest
    number: int
    row: LoggedRow
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a file says of the journal, as it was when the file was written."""

    name: str
    rows: int
    chain: str  # the digest of the last row


@dataclass(frozen=True, kw_only=True, eq=False)
class Looked:
    """A run directory, as far as an audit needs it."""

    run: RunDirectory
    state: State
    marks: Sequence[Mark]
    links: Sequence[Link]  # of every whole line of the journal
    rows: Sequence[Row]  # all of them; an `Other` for one that cannot be read
    metrics: Sequence[SealedLine]
    evaluations: Sequence[SealedLine]
    unreadable: Sequence[str]  # lines that are no rows

    @property
    def path(self) -> Path:
        return self.run.path

    @cached_property
    def surviving(self) -> list[Row]:
        return surviving_rows(self.rows)

    @cached_property
    def account(self) -> Ledger:
        return ledger(self.surviving)

    @cached_property
    def outcomes(self) -> tuple[list[Finished], list[Finished]]:
        """Those that rows of metrics count, and those that no step has taken."""
        return split_late(self.surviving)

    @cached_property
    def seals(self) -> Mapping[str, Sequence[str]]:
        """By name all digests that were written for it, the newest last."""
        digests: dict[str, list[str]] = {}
        for row in self.rows:
            if isinstance(row, Sealed):
                digests.setdefault(row.name, []).append(row.digest)
        return digests

    @cached_property
    def book(self) -> SealBook:
        """What it says of folders of weights."""
        return seal_book(self.rows)

    @cached_property
    def missing_checkpoints(self) -> list[str]:
        """That a row says were written, and no row that the run has removed them. One that a kill, or a run that went
        back, has left under another name is there."""
        names = (row.name for row in self.surviving if isinstance(row, Sealed))
        return [
            name
            for name in dict.fromkeys(name for name in names if name.startswith(f"{CHECKPOINTS}/"))
            if self.seals[name][-1] != GONE  # also by a row that is void: what was removed stays so
            and not (self.path / name).exists()
            and not any((self.path / CHECKPOINTS).glob(f"aside*-{Path(name).name}"))
            and not (self.path / CHECKPOINTS / f".{Path(name).name}.tmp").exists()
        ]

    @cached_property
    def summary_seal(self) -> str:
        """That the newest process has written; "" where it has not come to its end."""
        last = max((row.lineage for row in self.rows), default=0)
        rows = (row for row in reversed(self.rows) if isinstance(row, Sealed) and row.lineage == last)
        return next((row.digest for row in rows if row.name == SUMMARY), "")

    @property
    def kills(self) -> int:
        """Processes that may have been killed between a file and its seal: they have sealed no summary."""
        ended = {row.lineage for row in self.rows if isinstance(row, Sealed) and row.name == SUMMARY}
        lineages = [row.lineage for row in self.rows if isinstance(row, Begin)]
        return sum(lineage not in ended for lineage in lineages[:-1]) + (not self.is_over)

    @property
    def is_sealed(self) -> bool:
        """Whether it has digests: an earlier rlsys wrote none."""
        return any(link.chain for link in self.links)

    @property
    def lacks_digests(self) -> str:
        """Why nothing can be compared with what was written; "" where it can."""
        if self.is_sealed:
            return ""
        return "an earlier rlsys wrote no digests" if self.rows else "the journal has no rows"

    @property
    def is_over(self) -> bool:
        """Whether the newest process has written its summary itself: one that was killed has left what it was at."""
        return self.state in OVER and self.run.summary.get("by") != "parent"


def read_run(path: Path, *, after_summary: bool = False) -> Looked:
    """after_summary: a run that has ended reads itself; its summary says how. Raises BadInput for no run directory.

    A run may write meanwhile. What speaks of the journal is read before it, and what its digests speak of after it;
    lines that came in between, whose digests are not known, are left out.
    """
    run = read_directory(path)
    marks = list(_read_marks(path, run.summary))
    old_names = None if run.state in OVER else {line.name for line in (*_metrics(path, []), *_evaluations(path, []))}
    status = next((state for state in get_args(State) if state == run.summary.get("status")), run.state)
    unreadable: list[str] = []
    chain: list[Link] = []
    rows: list[Row] = []
    for number, line in _lines_of_file(path / JOURNAL):
        chain.append(follow(line, chain[-1].chain if chain else ""))
        try:
            rows.append(read_row(line, f"{JOURNAL} line {number}"))
        except BadInput as error:
            unreadable.append(str(error))
            rows.append(Other())
    sealed = {row.name for row in rows if isinstance(row, Sealed)}
    metrics, evaluations = (
        [line for line in lines if old_names is None or line.name in old_names or line.name in sealed]
        for lines in (_metrics(path, unreadable), _evaluations(path, unreadable))
    )
    return Looked(
        run=run,
        state=status if after_summary else run.state,
        marks=marks,
        links=chain,
        rows=rows,
        metrics=metrics,
        evaluations=evaluations,
        unreadable=unreadable,
    )


def list_checkpoints(path: Path) -> list[Path]:
    """Those of a run directory that are whole, the oldest first."""
    folder = path / "checkpoints"
    checkpoints = [child for child in folder.iterdir() if _is_checkpoint(child)] if folder.is_dir() else []
    return sorted(checkpoints, key=step_of)


def foreign_checkpoints(path: Path) -> list[str]:
    """What lies among them under a name that a run gives to nothing."""
    foreign = (child for child in (path / "checkpoints").glob("*") if not _is_checkpoint(child))
    return sorted(child.name for child in foreign if not child.name.startswith((".", "aside")))


def _is_checkpoint(path: Path) -> bool:
    return path.is_dir() and bool(FOLDER.fullmatch(path.name) or BEST.fullmatch(path.name))


def _read_marks(path: Path, summary: Mapping[str, Any]) -> Iterator[Mark]:
    for folder in list_checkpoints(path):
        try:
            state = read_state(folder)
        except BadInput:
            continue  # the audit of the checkpoints reports it
        yield Mark(name=folder.name, rows=state.mark, chain=state.chain)
    ended = summary.get("journal")
    if isinstance(ended, dict):
        rows = ended.get("rows")
        yield Mark(name="summary.json", rows=rows if type(rows) is int else 0, chain=str(ended.get("chain", "")))


def _lines_of_file(path: Path) -> Iterator[tuple[int, bytes]]:
    """None of a pipe or a folder, which another's directory may have in its place."""
    return whole_lines(path) if path.is_file() else iter(())


def _metrics(path: Path, unreadable: list[str]) -> Iterator[SealedLine]:
    return _sealed_lines(path / METRICS, lambda row: metrics_line_name(row.step), unreadable)


def _evaluations(path: Path, unreadable: list[str]) -> Iterator[SealedLine]:
    return _sealed_lines(path / EVALUATIONS, _name_evaluation, unreadable)


def _name_evaluation(row: LoggedRow) -> str:
    return evaluation_line_name(row.values.get("stage"), row.values.get("when"), row.step)


def _sealed_lines(path: Path, name: Callable[[LoggedRow], str], unreadable: list[str]) -> Iterator[SealedLine]:
    for number, line in _lines_of_file(path):
        try:
            row = parse_row(json_object(line, f"{path.name} line {number}"))
            if row is None:
                raise BadInput("it has no step", where=f"{path.name} line {number}")
        except BadInput as error:
            unreadable.append(str(error))
        else:
            yield SealedLine(name=name(row), number=number, row=row, digest=digest_of(line.rstrip(b"\n")))
