"""`manifest.json` beside the files: what they are, what of, under which licences, and what was left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.jsonl import decode, encode

NAME = "manifest.json"
VERSION = 3  # of how files are made: another one makes them anew


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNote:
    name: str  # musique.train
    title: str
    licence: str
    page: str
    files: tuple[str, ...]
    sha256: tuple[str, ...]
    expected: int | None = None  # records, as a paper or the publisher says


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    recipe: str
    options: Mapping[str, Any]
    missing: tuple[str, ...] = ()  # what of the recipe is not here, and why
    sources: tuple[SourceNote, ...] = ()
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
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path}: not a manifest of `rlsys data prepare` ({error}): remove it or choose another folder"
        ) from error
