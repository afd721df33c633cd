"""`manifest.json` beside the files: what they are, what of, under which licences, and what was left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.tasks.files import Located, open_records
from launch.data.records import Progress, Role
from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.jsonl import decode, encode

CHUNK = 1 << 22
NAME = "manifest.json"
VERSION = 3  # of how files are made: another one makes them anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source(name="gsm8k.train", .., files=("/data/gsm8k/train.jsonl",), sha256=("9f86d0...",), expected=7473)"""

    name: str
    title: str
    licence: str
    page: str
    files: tuple[str, ...]
    sha256: tuple[str, ...]  # of each
    expected: int | None = None  # records, as a paper or the publisher says

    def records(self) -> Iterator[Located]:
        for path in self.files:
            yield from open_records(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNote:
    file: str
    role: str
    rows: int
    sha256: str
    made_from: str  # a digest of all that it depends on
    sources: tuple[str, ...]
    read: Mapping[str, int] = field(default_factory=dict)  # records of each source
    left_out: Mapping[str, int] = field(default_factory=dict)  # in_evaluation, repeated, near, unreadable, not_drawn
    warnings: tuple[str, ...] = ()

    @property
    def counted(self) -> str:
        return f"{self.rows:,} {'passages' if self.role == Role.CORPUS else 'tasks'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    recipe: str
    options: Mapping[str, Any]
    missing: tuple[str, ...] = ()  # what of the recipe is not here, and why
    sources: tuple[Source, ...] = ()
    files: tuple[FileNote, ...] = ()
    version: int = VERSION

    def write(self, folder: Path) -> None:
        replace_file(folder / NAME, json.dumps(encode(self), indent=1, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> Manifest | None:
    """None where there is none, or another version's. Raises BadInput for a damaged one."""
    path = folder / NAME
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.get("version") != VERSION:
            return None
        found: Manifest = decode(Manifest, value)
        return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=path) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(
            f"not a manifest of `rlsys data prepare` ({error}): remove it or choose another folder", where=path
        ) from error


def digest_of(path: Path, show: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                done += len(chunk)
                show(f"digest of {path.name}", done, total)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=path) from error
    return digest.hexdigest()
