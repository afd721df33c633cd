"""From public files to a recipe's files, one after another: evaluation first, for training is kept apart from it.

Each file is written next to its place and renamed into it, and then noted in the manifest with a digest of all that it
was made of: the same command again makes only what is missing or would be different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from launch.data.build import FileBuild, Options, Preparation
from launch.data.manifest import VERSION, FileNote, Manifest, digest_of, find_files, open_source, read_manifest
from launch.data.records import Part, Progress, PublicSet, Recipe, Role
from launch.data.sets import SETS
from rlsys.errors import BadInput


def prepare(recipe: Recipe, output: Path, options: Options, show: Progress, say: Callable[[str], None]) -> Manifest:
    """Make what is missing in `output`. Raises BadInput: nothing of the file it is about was written."""
    names = [name for part in recipe.parts if not part.role.of_files for name in part.sources]
    paths, missing = find_files(names, options.origin, options.files, show, partial=options.partial)
    absent = tuple(f"{name}: {why}" for name, why in missing.items())
    if missing and not options.partial:
        reasons = dict.fromkeys(missing.values())
        problem = "; ".join(f"{', '.join(name for name in missing if missing[name] == why)}: {why}" for why in reasons)
        ways = "give the folder of what you downloaded with --from DIR, a file with --file SET.SPLIT=PATH, or --partial"
        raise BadInput(f"{problem} ({ways})", key="--from", found=options.origin)
    if not paths:
        raise BadInput(f"nothing of {recipe.name} is there: {'; '.join(absent)}", key="--from", found=options.origin)
    for line in absent:
        say(f"warning: left out: {line}")
    sources = {name: open_source(name, files, show) for name, files in paths.items()}
    preparation = Preparation(recipe=recipe, output=output, options=options, sources=sources, show=show, say=say)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot be made ({error.strerror})", key="--output", found=output) from error
    notes = _notes_before(preparation)
    settings = {key: getattr(options, key) for key in ("tasks", "eval_tasks", "seed", "stratify", "near")}
    manifest = Manifest(
        recipe=recipe.name,
        options=settings,
        missing=absent,
        sources=tuple(sources.values()),
        files=tuple(notes.values()),
    )
    for part in recipe.parts:
        note = _make(preparation, part, notes.get(part.file))
        if note is not None:
            preparation.made[part.file] = note
            notes = {name: old_note for name, old_note in notes.items() if name != part.file} | {part.file: note}
            manifest = replace(manifest, files=tuple(notes.values()))
            manifest.write(output)
    return manifest


def _notes_before(preparation: Preparation) -> dict[str, FileNote]:
    """By file, what an earlier preparation has made. Raises BadInput for the folder of another recipe."""
    before, recipe = read_manifest(preparation.output), preparation.recipe
    if before is None:
        return {}
    if before.recipe != recipe.name:
        raise BadInput(
            f"has the files of {before.recipe}: choose another folder", key="--output", found=preparation.output
        )
    files = {part.file for part in recipe.parts}
    return {note.file: note for note in before.files if note.file in files}


def _make(preparation: Preparation, part: Part, before: FileNote | None) -> FileNote | None:
    """The part's file, made or kept. None where nothing of its sources is here."""
    present = [name for name in part.sources if name in preparation.sources or name in preparation.made]
    if not present:
        preparation.say(f"warning: {part.file}: left out, as {' and '.join(part.sources)} is")
        return None
    made_from, path = _digest(preparation, part, present), preparation.output / part.file
    if before is not None and before.made_from == made_from and path.is_file():
        if digest_of(path, preparation.show) == before.sha256:
            preparation.say(f"{part.file}: kept, {before.counted}")
            return before
    return FileBuild(preparation, part, present).make(made_from)


def _digest(preparation: Preparation, part: Part, present: Sequence[str]) -> str:
    """Of all that a file depends on."""
    options, sources, notes = preparation.options, preparation.sources, preparation.made
    cut = (options.seed, options.stratify, options.partial) if part.role is not Role.CORPUS else options.partial
    digests = [sources[name].sha256 if name in sources else notes[name].sha256 for name in present]
    evals = [options.near, *(note.sha256 for note in preparation.evaluation_files())] if part.role is Role.TRAIN else []
    parts = [VERSION, repr(part), present, digests, evals, preparation.most(part), cut]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sets_of(recipe: Recipe) -> list[PublicSet]:
    """The public sets that a recipe is made of, each once."""
    names = [name.partition(".")[0] for part in recipe.parts if not part.role.of_files for name in part.sources]
    return [SETS[name] for name in dict.fromkeys(names)]
