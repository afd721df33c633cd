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
from launch.data.selection import Dropped, apart, draw_rows, without_near
from launch.data.sets import split_of
from rlsys.errors import BadInput, require
from rlsys.files import naming, whole_file
from rlsys.jsonl import line_of

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
            found = getattr(self, key)
            require(found is None or found >= 1, f"--{key.replace('_', '-')}", found, "at least 1")
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
        """What the command line asks of this file: no more than so many rows."""
        inner = {name for each in self.recipe.parts if each.role.of_files for name in each.sources}
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
            chosen = self._of_files() if part.role.of_files else self._tasks()
            rows = len(chosen)
            if rows == 0:
                self._warnings.append("no task is left")
            self._check_warnings()
            if rows == 0:
                say(f"warning: {part.file}: left out: no task is left of {', '.join(self._present)}")
                return None
            write(self._path, map(line_of, chosen))
            self._write_left_out()
        note = self._note(rows, made_from)
        words = ", ".join(f"{count:,} {name}" for name, count in note.left_out.items())
        say(f"{part.file}: {note.counted} of {', '.join(note.sources)}" + (f"; left out {words}" if words else ""))
        for each in self._left[:1]:
            say(f"{part.file}: such as {_short(each.row)} ({each.why}: {each.of})")
        for warning in note.warnings:
            say(f"warning: {part.file}: {warning}")
        return note

    def _note(self, rows: int, made_from: str) -> FileNote:
        left = Counter(each.why.replace("_", " ") for each in self._left)
        counts = {**left, **self._counts, "unreadable": len(self._unreadable)}
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
            found = "; ".join(self._warnings)
            raise BadInput(f"{found}: another version, or a slice of it? --partial accepts it", where=self._part.file)

    def _write_left_out(self) -> None:
        """All of them, next to the file: `train.left_out.jsonl`."""
        path = self._path.with_suffix(".left_out.jsonl")
        if self._left:
            write(path, (line_of({"why": each.why, "of": each.of, **each.row}) for each in self._left))
        else:
            path.unlink(missing_ok=True)

    # -- records ------------------------------------------------------------------------------------------------------

    def _read(self, name: str, reader: Callable[[Located], Iterable[Any]]) -> Iterator[Any]:
        """What the records of a source hold, with progress. Raises BadInput where many cannot be read."""
        expected, unreadable = split_of(name)[1].count, len(self._unreadable)
        for done, record in enumerate(self._preparation.sources[name].records(), start=1):
            self._records[name] = done
            if done % SHOW_EVERY == 0:
                self._preparation.show(f"{self._part.file}: {name}", done, expected)
            try:
                yield from list(reader(record))
            except BadInput as error:
                self._unreadable.append(str(error))
        found, bad = self._records[name], self._unreadable[unreadable:]
        if len(bad) > MOST_UNREADABLE * found:
            raise BadInput(f"{len(bad):,} of {found:,} records cannot be read, the first: {bad[0]}", where=name)
        if expected is not None and found != expected:
            self._warnings.append(f"{name} has {found:,} records, {expected:,} expected")

    def _rows(self, name: str) -> list[Row]:
        rows, where = list(self._read(name, split_of(name)[0].rows)), self._part.where
        if where is None:
            return rows
        fit = [row for row in rows if str(row.get(where[0])) in where[1]]
        self._counts["filtered"] += len(rows) - len(fit)
        return fit

    def _write_corpus(self) -> int:
        """Each paragraph once, numbered in the order of its first appearance; nothing of it is held in memory."""
        seen: set[bytes] = set()

        def lines() -> Iterator[bytes]:
            for name in self._present:
                for title, text in self._read(name, split_of(name)[0].passages):
                    stored = contents(title, text)
                    what = hashlib.blake2b(stored.encode("utf-8", "surrogatepass"), digest_size=16).digest()
                    if what in seen:
                        self._counts["repeated"] += 1
                        continue
                    seen.add(what)
                    yield line_of({"id": str(len(seen) - 1), "contents": stored})
            self._check_warnings()  # before the file takes its place

        write(self._path, lines())
        return len(seen)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _tasks(self) -> list[Row]:
        part, options, kind = self._part, self._options, split_of(self._present[0])[0]
        by_source = [self._rows(name) for name in self._present]
        held = self._find_held_out() if part.role is Role.TRAIN else {}
        chosen: list[Row] = []
        for rows in by_source if part.each else [[row for each in by_source for row in each]]:
            if part.expect is not None and len(rows) != part.expect:
                self._warnings.append(f"{len(rows):,} tasks, {part.expect:,} expected")
            if part.first and part.take is not None:  # as published, before anything is left out of them
                rows = self._cut(rows, rows[: part.take], part.take)
            if part.role is Role.TRAIN:
                rows = self._apart(kind, rows, held)
            if part.take is not None and not part.first:
                some = draw_rows(rows, part.take, seed=options.seed, same=kind.same, stratify=part.stratify)
                rows = self._cut(rows, some, part.take)
            chosen += rows
        most = self._preparation.most(part)
        if most is not None:
            some = draw_rows(chosen, most, seed=options.seed, same=kind.same, stratify=options.stratify)
            chosen = self._cut(chosen, some, min(most, len(chosen)))
        return chosen

    def _cut(self, rows: list[Row], chosen: list[Row], wanted: int) -> list[Row]:
        if len(chosen) < wanted:
            self._warnings.append(f"{len(chosen):,} rows, {wanted:,} wanted")
        self._counts["not drawn"] += len(rows) - len(chosen)
        return chosen

    def _find_held_out(self) -> dict[str, list[str]]:
        """By what a row is: the evaluation files that have it."""
        found: dict[str, list[str]] = {}
        for file, kind, row in self._preparation.evaluation_rows():
            found.setdefault(kind.same(row), []).append(file)
        return found

    def _apart(self, kind: PublicSet, rows: list[Row], held: Mapping[str, Sequence[str]]) -> list[Row]:
        """Those that no evaluation file has, and of two that are the same the first."""
        if self._part.rest is not None:
            others = [row for row in rows if self._part.rest not in held.get(kind.same(row), ())]
            self._counts["evaluated"] += len(rows) - len(others)
            rows = others
        first = {what: files[0] for what, files in held.items()}
        rows, left = apart(rows, same=kind.same, twin=kind.twin or kind.same, held=first)
        self._left += left
        near = self._options.near
        if near is not None and kind.text is not None:
            known = self._preparation.evaluation_rows()
            texts = [(other.text(row), file) for file, other, row in known if other.text is not None]
            show = self._preparation.show
            rows, left = without_near(rows, text=kind.text, held=texts, threshold=near, show=show)
            self._left += left
        return rows

    def _of_files(self) -> list[Row]:
        """Made of files that are there already: answers that are shown, or single steps."""
        chosen: list[Row] = []
        for name in self._present:
            path = self._preparation.output / name
            kind = split_of(self._preparation.made[name].sources[0])[0]
            if self._part.role is Role.STEPS:
                chosen += single_steps(kind.name, path)
                continue
            rows = list(demonstration_rows(path, kind))
            take = self._part.take or len(rows)
            some = draw_rows(rows, take, seed=self._options.seed, same=lambda row: str(row["question"]))
            chosen += self._cut(rows, some, take)
        return chosen


def write(path: Path, lines: Iterable[bytes]) -> None:
    """All of them, or nothing."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.writelines(lines)


def _short(row: Row) -> str:
    words = str(row.get("question") or row.get("goal") or row.get("id"))
    return repr(words if len(words) <= 80 else f"{words[:77]}...")
