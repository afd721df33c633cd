"""One file of a recipe: what is read, left out, drawn and counted until it comes into its place whole."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.services.retriever.corpus import contents
from envs.tasks.files import Located, read_jsonl
from launch.data.derived import demonstration_rows, single_steps
from launch.data.manifest import FileNote, Source, digest_of
from launch.data.records import Part, Progress, PublicSet, Recipe, Role, Row
from launch.data.selection import Dropped, draw_rows, drop_duplicates, drop_near_duplicates
from launch.data.sets import split_of
from rlsys.errors import BadInput, require
from rlsys.files import naming, whole_file
from rlsys.jsonl import json_line

SHOW_EVERY = 1_000  # records
MOST_UNREADABLE = 0.01  # of a source's records; more, and it is another file than was meant


@dataclass(frozen=True, kw_only=True)
class Options:
    origin: str = "hub"
    files: Mapping[str, str] = field(default_factory=dict)  # musique.train: a path
    tasks: int | None = None
    eval_tasks: int | None = None
    seed: int = 0
    stratify: str | None = None
    near: float | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        for key in ("tasks", "eval_tasks"):
            count = getattr(self, key)
            require(count is None or count >= 1, f"--{key.replace('_', '-')}", count, "at least 1")
        require(self.near is None or 0 < self.near <= 1, "--near", self.near, "above 0 and at most 1")
        cut = self.stratify is None or self.tasks is not None or self.eval_tasks is not None
        require(cut, "--stratify", self.stratify, "--tasks or --eval-tasks with it")


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What the files of a recipe are made with, and those that are there so far."""

    recipe: Recipe
    output: Path
    options: Options
    sources: Mapping[str, Source]
    show: Progress
    say: Callable[[str], None]
    made: dict[str, FileNote] = field(default_factory=dict)

    def evaluation_files(self) -> list[FileNote]:
        """The evaluation files, which training is kept apart from."""
        return [note for note in self.made.values() if note.role == Role.EVAL]

    def evaluation_rows(self) -> Iterator[tuple[str, PublicSet, Row]]:
        for note in self.evaluation_files():
            kind = split_of(note.sources[0])[0]
            for _, row in read_jsonl(str(self.output / note.file)):
                yield note.file, kind, row

    def most(self, part: Part) -> int | None:
        """The most rows that the command line allows for this file; None without a limit."""
        inner = {name for part in self.recipe.parts if part.role.of_files for name in part.sources}
        if part.role is Role.EVAL:
            return self.options.eval_tasks
        return self.options.tasks if part.role is Role.TRAIN and part.file not in inner else None


class FileBuild:
    def __init__(self, preparation: Preparation, part: Part, present: Sequence[str]) -> None:
        """present: those of the part's sources that are here."""
        self._preparation, self._part, self._present = preparation, part, present
        self._options, self._path = preparation.options, preparation.output / part.file
        self._records: Counter[str] = Counter()  # by source
        self._counts: Counter[str] = Counter()
        self._left: list[Dropped] = []
        self._unreadable: list[str] = []
        self._warnings: list[str] = []

    def make(self, made_from: str) -> FileNote | None:
        """Write the file and say what it has; None where no task is left. made_from: a digest of all it depends on."""
        part, say = self._part, self._preparation.say
        if part.role is Role.CORPUS:
            rows = self._write_corpus()
        else:
            tasks = self._of_files() if part.role.of_files else self._tasks()
            rows = len(tasks)
            if rows == 0:
                self._warnings.append("no task is left")
            self._check_warnings()
            if rows == 0:
                say(f"warning: {part.file}: left out: no task is left of {', '.join(self._present)}")
                return None
            write(self._path, map(json_line, tasks))
            self._write_left_out()
        note = self._note(rows, made_from)
        words = ", ".join(f"{count:,} {name}" for name, count in note.left_out.items())
        say(f"{part.file}: {note.counted} of {', '.join(note.sources)}" + (f"; left out {words}" if words else ""))
        for dropped in self._left[:1]:
            say(f"{part.file}: such as {_short(dropped.row)} ({dropped.why}: {dropped.of})")
        for warning in note.warnings:
            say(f"warning: {part.file}: {warning}")
        return note

    def _note(self, rows: int, made_from: str) -> FileNote:
        reasons = Counter(dropped.why.replace("_", " ") for dropped in self._left)
        counts = {**reasons, **self._counts, "unreadable": len(self._unreadable)}
        return FileNote(
            file=self._part.file,
            role=str(self._part.role),
            rows=rows,
            sha256=digest_of(self._path, self._preparation.show),
            made_from=made_from,
            sources=tuple(self._present),
            read=dict(self._records),
            left_out={name: count for name, count in counts.items() if count},
            warnings=(*self._warnings, *(f"unreadable: {first}" for first in self._unreadable[:1])),
        )

    def _check_warnings(self) -> None:
        """Raises BadInput where numbers differ and `--partial` does not allow it."""
        if self._warnings and not self._options.partial:
            reason = "; ".join(self._warnings)
            raise BadInput(f"{reason}: another version, or a slice of it? --partial accepts it", where=self._part.file)

    def _write_left_out(self) -> None:
        """All of them, next to the file: `train.left_out.jsonl`."""
        path = self._path.with_suffix(".left_out.jsonl")
        if self._left:
            write(path, (json_line({"why": dropped.why, "of": dropped.of, **dropped.row}) for dropped in self._left))
        else:
            path.unlink(missing_ok=True)

    # -- records ------------------------------------------------------------------------------------------------------

    def _read(self, name: str, reader: Callable[[Located], Iterable[Any]]) -> Iterator[Any]:
        """What the records of a source hold, with progress. Raises BadInput where many cannot be read."""
        expected, unreadable = split_of(name)[1].count, len(self._unreadable)
        for number, record in enumerate(self._preparation.sources[name].records(), start=1):
            self._records[name] = number
            if number % SHOW_EVERY == 0:
                self._preparation.show(f"{self._part.file}: {name}", number, expected)
            try:
                yield from list(reader(record))
            except BadInput as error:
                self._unreadable.append(str(error))
        count, bad = self._records[name], self._unreadable[unreadable:]
        if len(bad) > MOST_UNREADABLE * count:
            raise BadInput(f"{len(bad):,} of {count:,} records cannot be read, the first: {bad[0]}", where=name)
        if expected is not None and count != expected:
            self._warnings.append(f"{name} has {count:,} records, {expected:,} expected")

    def _rows(self, name: str) -> list[Row]:
        rows, where = list(self._read(name, split_of(name)[0].rows)), self._part.where
        if where is None:
            return rows
        fit = [row for row in rows if str(row.get(where[0])) in where[1]]
        self._counts["filtered"] += len(rows) - len(fit)
        return fit

    def _write_corpus(self) -> int:
        """Each paragraph once, numbered in the order of its first appearance; nothing of it is held in memory."""
        digests: set[bytes] = set()

        def lines() -> Iterator[bytes]:
            for name in self._present:
                for title, text in self._read(name, split_of(name)[0].passages):
                    stored = contents(title, text)
                    digest = hashlib.blake2b(stored.encode("utf-8", "surrogatepass"), digest_size=16).digest()
                    if digest in digests:
                        self._counts["repeated"] += 1
                        continue
                    digests.add(digest)
                    yield json_line({"id": str(len(digests) - 1), "contents": stored})
            self._check_warnings()  # before the file takes its place

        write(self._path, lines())
        return len(digests)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _tasks(self) -> list[Row]:
        part, options, kind = self._part, self._options, split_of(self._present[0])[0]
        by_source = [self._rows(name) for name in self._present]
        held_out = self._find_held_out() if part.role is Role.TRAIN else {}
        tasks: list[Row] = []
        for rows in by_source if part.each else [[row for source_rows in by_source for row in source_rows]]:
            if part.expect is not None and len(rows) != part.expect:
                self._warnings.append(f"{len(rows):,} tasks, {part.expect:,} expected")
            if part.first and part.take is not None:  # as published, before anything is left out of them
                rows = self._cut(rows, rows[: part.take], part.take)
            if part.role is Role.TRAIN:
                rows = self._apart(kind, rows, held_out)
            if part.take is not None and not part.first:
                sample = draw_rows(rows, part.take, seed=options.seed, same=kind.same, stratify=part.stratify)
                rows = self._cut(rows, sample, part.take)
            tasks += rows
        most = self._preparation.most(part)
        if most is not None:
            sample = draw_rows(tasks, most, seed=options.seed, same=kind.same, stratify=options.stratify)
            tasks = self._cut(tasks, sample, min(most, len(tasks)))
        return tasks

    def _cut(self, rows: list[Row], sample: list[Row], count: int) -> list[Row]:
        if len(sample) < count:
            self._warnings.append(f"{len(sample):,} rows, {count:,} wanted")
        self._counts["not drawn"] += len(rows) - len(sample)
        return sample

    def _find_held_out(self) -> dict[str, list[str]]:
        """The evaluation files that contain a row, by the identity of the row."""
        files: dict[str, list[str]] = {}
        for file, kind, row in self._preparation.evaluation_rows():
            files.setdefault(kind.same(row), []).append(file)
        return files

    def _apart(self, kind: PublicSet, rows: list[Row], held_out: Mapping[str, Sequence[str]]) -> list[Row]:
        """The rows that no evaluation file contains; of two equal rows the first."""
        if self._part.rest is not None:
            remaining = [row for row in rows if self._part.rest not in held_out.get(kind.same(row), ())]
            self._counts["evaluated"] += len(rows) - len(remaining)
            rows = remaining
        first = {identity: files[0] for identity, files in held_out.items()}
        rows, dropped = drop_duplicates(rows, same=kind.same, twin=kind.twin or kind.same, held=first)
        self._left += dropped
        near = self._options.near
        if near is not None and kind.text is not None:
            evaluated = self._preparation.evaluation_rows()
            texts = [(source.text(row), file) for file, source, row in evaluated if source.text is not None]
            show = self._preparation.show
            rows, dropped = drop_near_duplicates(rows, text=kind.text, held=texts, threshold=near, show=show)
            self._left += dropped
        return rows

    def _of_files(self) -> list[Row]:
        """Made of files that are there already: answers that are shown, or single steps."""
        tasks: list[Row] = []
        for name in self._present:
            path = self._preparation.output / name
            kind = split_of(self._preparation.made[name].sources[0])[0]
            if self._part.role is Role.STEPS:
                tasks += single_steps(kind.name, path)
                continue
            rows = list(demonstration_rows(path, kind))
            take = self._part.take or len(rows)
            sample = draw_rows(rows, take, seed=self._options.seed, same=lambda row: str(row["question"]))
            tasks += self._cut(rows, sample, take)
        return tasks


def write(path: Path, lines: Iterable[bytes]) -> None:
    """All of them, or nothing."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.writelines(lines)


def _short(row: Row) -> str:
    words = str(row.get("question") or row.get("goal") or row.get("id"))
    return repr(words if len(words) <= 80 else f"{words[:77]}...")
