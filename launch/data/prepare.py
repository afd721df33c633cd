"""From public files to a recipe's files, one after another: evaluation first, for training is kept apart from it.

Each file is written beside its place and renamed into it, and then noted in the manifest with a digest of all that it
was made of: the same command again makes only what is missing or would be different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from envs.services.retriever.documents import contents
from envs.tasks.files import Located
from envs.tasks.jsonl import read_jsonl
from launch.data.choose import drawn
from launch.data.derived import shown_rows, single_steps
from launch.data.duplicates import apart, without_near
from launch.data.making import Making, write, write_left_out
from launch.data.manifest import VERSION, FileNote, Manifest, SourceNote, read_manifest
from launch.data.records import Part, PublicSet, Recipe, Role, Row
from launch.data.sets import SETS, split_of
from launch.data.sources import HUB, Progress, Source, digest_of, find_files, opened
from rlsys.errors import BadInput, require
from rlsys.jsonl import line_of

SHOW_EVERY = 1_000  # records
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    origin: str = HUB
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
        require(cut, "--stratify", self.stratify, "--tasks or --eval-tasks beside it")


def prepare(recipe: Recipe, output: Path, options: Options, show: Progress, say: Say) -> Manifest:
    """Make what is missing in `output`. Raises BadInput: nothing of the file it is about was written."""
    named = [name for part in recipe.parts if not part.role.of_files for name in part.sources]
    paths, missing = find_files(named, options.origin, options.files, show, partial=options.partial)
    told = tuple(f"{name}: {why}" for name, why in missing.items())
    if missing and not options.partial:
        raise BadInput(f"--from {options.origin}: {'; '.join(told)} (--file SET.SPLIT=PATH, or --partial without them)")
    if not paths:
        raise BadInput(f"--from {options.origin}: nothing of {recipe.name} is there: {'; '.join(told)}")
    for line in told:
        say(f"warning: left out: {line}")
    sources = {name: opened(name, each, show) for name, each in paths.items()}
    work = Work(recipe, output, options, sources, show, say)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--output {output}: cannot be made ({error.strerror})") from error
    manifest = work.begin(told)
    for part in recipe.parts:
        note = work.make(part)
        if note is not None:
            manifest = replace(manifest, files=(*(each for each in manifest.files if each.file != part.file), note))
            manifest.write(output)
    return manifest


class Work:
    """One preparation: what it reads, and the files that it has made so far."""

    def __init__(
        self, recipe: Recipe, output: Path, options: Options, sources: Mapping[str, Source], show: Progress, say: Say
    ) -> None:
        self._recipe, self._output, self._options = recipe, output, options
        self._sources, self._show, self._say = sources, show, say
        self._before: dict[str, FileNote] = {}
        self._made: dict[str, FileNote] = {}

    def begin(self, missing: tuple[str, ...]) -> Manifest:
        """The manifest with what an earlier preparation has made and this one's sources."""
        before = read_manifest(self._output)
        if before is not None and before.recipe != self._recipe.name:
            raise BadInput(f"--output {self._output}: has the files of {before.recipe}: choose another folder")
        files = {part.file for part in self._recipe.parts}
        self._before = {note.file: note for note in before.files if note.file in files} if before else {}
        told = {key: getattr(self._options, key) for key in ("tasks", "eval_tasks", "seed", "stratify", "near")}
        sources = tuple(map(_noted, self._sources.values()))
        return Manifest(
            recipe=self._recipe.name, options=told, missing=missing, sources=sources, files=tuple(self._before.values())
        )

    def make(self, part: Part) -> FileNote | None:
        """The part's file, made or kept. None where nothing of its sources is here."""
        present = [name for name in part.sources if name in self._sources or name in self._made]
        if not present:
            self._say(f"warning: {part.file}: left out, as {' and '.join(part.sources)} is")
            return None
        made_from, path = self._digest(part, present), self._output / part.file
        before = self._before.get(part.file)
        if before is not None and before.made_from == made_from and path.is_file():
            if digest_of(path, self._show) == before.sha256:
                self._say(f"{part.file}: kept, {_counted(part, before.rows)}")
                self._made[part.file] = before
                return before
        making = Making(part, path, partial=self._options.partial)
        if part.role is Role.CORPUS:
            rows = self._write_corpus(making, present)
        else:
            chosen = self._of_files(making, present) if part.role.of_files else self._tasks(making, present)
            rows = len(chosen)
            if rows == 0:
                making.differs("no task is left")
            making.settle()
            if rows == 0:
                self._say(f"warning: {part.file}: left out: no task is left of {', '.join(present)}")
                return None
            write(path, map(line_of, chosen))
            write_left_out(path, making.left)
        note = making.note(rows, digest_of(path, self._show), made_from, present)
        self._made[part.file] = note
        self._tell(part, note, making)
        return note

    def _tell(self, part: Part, note: FileNote, making: Making) -> None:
        left = {name: count for name, count in note.left_out.items() if count}
        words = f"; left out {', '.join(f'{count:,} {name}' for name, count in left.items())}" if left else ""
        self._say(f"{part.file}: {_counted(part, note.rows)} of {', '.join(note.sources)}{words}")
        for each in making.left[:1]:
            self._say(f"{part.file}: such as {_short(each.row)} ({each.why}: {each.of})")
        for warning in note.warnings:
            self._say(f"warning: {part.file}: {warning}")

    # -- what a file depends on ---------------------------------------------------------------------------------------

    def _digest(self, part: Part, present: Sequence[str]) -> str:
        options = self._options
        cut = (options.seed, options.stratify, options.partial) if part.role is not Role.CORPUS else options.partial
        read = [self._sources[name].digests if name in self._sources else self._made[name].sha256 for name in present]
        held = [options.near, *(note.sha256 for note in self._held())] if part.role is Role.TRAIN else []
        parts = [VERSION, repr(part), present, read, held, self._take(part), cut]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _held(self) -> list[FileNote]:
        return [note for note in self._made.values() if note.role == Role.EVAL]

    def _take(self, part: Part) -> int | None:
        """What the command line asks of this file: no more than so many."""
        inner = {name for each in self._recipe.parts if each.role.of_files for name in each.sources}
        if part.role is Role.EVAL:
            return self._options.eval_tasks
        return self._options.tasks if part.role is Role.TRAIN and part.file not in inner else None

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _tasks(self, making: Making, present: Sequence[str]) -> list[Row]:
        part, options, kind = making.part, self._options, split_of(present[0])[0]
        held = self._keys_of_held() if part.role is Role.TRAIN else {}
        chosen: list[Row] = []
        by_source = [self._rows(making, name) for name in present]
        together = [row for each in by_source for row in each]
        for rows in by_source if part.each else [together]:
            if part.expect is not None and len(rows) != part.expect:
                making.differs(f"{len(rows):,} tasks, {part.expect:,} expected")
            if part.first and part.take is not None:  # as published, before anything is left out of them
                rows = making.cut(rows, rows[: part.take], part.take)
            if part.role is Role.TRAIN:
                rows = self._apart(making, kind, rows, held)
            if part.take is not None and not part.first:
                some = drawn(rows, part.take, seed=options.seed, same=kind.same, stratify=part.stratify)
                rows = making.cut(rows, some, part.take)
            chosen += rows
        asked = self._take(part)
        if asked is not None:
            some = drawn(chosen, asked, seed=options.seed, same=kind.same, stratify=options.stratify)
            chosen = making.cut(chosen, some, min(asked, len(chosen)))
        return chosen

    def _apart(self, making: Making, kind: PublicSet, rows: list[Row], held: Mapping[str, Sequence[str]]) -> list[Row]:
        if making.part.rest is not None:
            others = [row for row in rows if making.part.rest not in held.get(kind.same(row), ())]
            making.counts["evaluated"] += len(rows) - len(others)
            rows = others
        first = {what: files[0] for what, files in held.items()}
        rows, left = apart(rows, same=kind.same, twin=kind.twin or kind.same, held=first)
        making.left += left
        if self._options.near is not None and kind.text is not None:
            texts = [(each.text(row), file) for file, each, row in self._held_rows() if each.text is not None]
            near = without_near(rows, text=kind.text, held=texts, threshold=self._options.near, show=self._show)
            rows, left = near
            making.left += left
        return rows

    def _held_rows(self) -> Iterator[tuple[str, PublicSet, Row]]:
        for note in self._held():
            kind = split_of(note.sources[0])[0]
            for _, row in read_jsonl(str(self._output / note.file)):
                yield note.file, kind, row

    def _keys_of_held(self) -> dict[str, list[str]]:
        """By what a row is: the evaluation files that have it."""
        found: dict[str, list[str]] = {}
        for file, kind, row in self._held_rows():
            found.setdefault(kind.same(row), []).append(file)
        return found

    def _rows(self, making: Making, name: str) -> list[Row]:
        kind, files = split_of(name)
        rows = [row for record in self._records(making, name) for row in making.read(kind.rows, record)]
        making.check(name, files.count)
        where = making.part.where
        if where is None:
            return rows
        fit = [row for row in rows if str(row.get(where[0])) in where[1]]
        making.counts["filtered"] += len(rows) - len(fit)
        return fit

    def _records(self, making: Making, name: str) -> Iterator[Located]:
        """Counted, with progress."""
        expected = split_of(name)[1].count
        for done, record in enumerate(self._sources[name].records(), start=1):
            making.records[name] += 1
            if done % SHOW_EVERY == 0:
                self._show(f"{making.part.file}: {name}", done, expected)
            yield record

    def _of_files(self, making: Making, present: Sequence[str]) -> list[Row]:
        """Made of files that are there already: answers that are shown, or single steps."""
        chosen: list[Row] = []
        for name in present:
            kind = split_of(self._made[name].sources[0])[0]
            if making.part.role is Role.STEPS:
                chosen += single_steps(kind.name, self._output / name)
                continue
            rows = list(shown_rows(self._output / name, kind))
            take = making.part.take or len(rows)
            some = drawn(rows, take, seed=self._options.seed, same=lambda row: str(row["question"]))
            chosen += making.cut(rows, some, take)
        return chosen

    # -- a corpus -----------------------------------------------------------------------------------------------------

    def _write_corpus(self, making: Making, present: Sequence[str]) -> int:
        """Each paragraph once, numbered in the order of its first appearance; nothing of it is held in memory."""
        seen: set[bytes] = set()

        def lines() -> Iterator[bytes]:
            for name in present:
                kind, files = split_of(name)
                for record in self._records(making, name):
                    for title, text in making.read(kind.passages, record):
                        stored = contents(title, text)
                        what = hashlib.blake2b(stored.encode("utf-8", "surrogatepass"), digest_size=16).digest()
                        if what in seen:
                            making.counts["repeated"] += 1
                            continue
                        seen.add(what)
                        yield line_of({"id": str(len(seen) - 1), "contents": stored})
                making.check(name, files.count)
            making.settle()  # before the file takes its place

        write(making.path, lines())
        return len(seen)


def _noted(source: Source) -> SourceNote:
    kind, files = split_of(source.name)
    return SourceNote(
        name=source.name,
        title=kind.title,
        licence=kind.licence,
        page=kind.page,
        files=source.files,
        sha256=source.digests,
        expected=files.count,
    )


def _counted(part: Part, rows: int) -> str:
    return f"{rows:,} {'passages' if part.role is Role.CORPUS else 'tasks'}"


def _short(row: Row) -> str:
    words = str(row.get("question") or row.get("goal") or row.get("id"))
    return repr(words if len(words) <= 80 else f"{words[:77]}...")


def sets_of(recipe: Recipe) -> list[PublicSet]:
    """The public sets that a recipe is made of, each once."""
    names = [name.partition(".")[0] for part in recipe.parts if not part.role.of_files for name in part.sources]
    return [SETS[name] for name in dict.fromkeys(names)]
