"""`manifest.json` next to the files: what they are, what of, under which licences, and what was left out.

The files of a set's split are given by hand, found in a folder, or downloaded from the hub.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from envs.tasks.files import Located, open_records
from envs.tasks.hub import SHARD, OutOfReach, download
from launch.data.records import Files, Progress, Role
from launch.data.sets import split_of
from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.jsonl import decode, encode

CHUNK = 1 << 22  # bytes that are digested at once
NAME = "manifest.json"
VERSION = 3  # of how files are made: files of another version are made again
HUB = "hub"


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
        manifest: Manifest = decode(Manifest, value)
        return manifest
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


class Folder:
    """The files below a folder, looked up by the patterns of a set."""

    def __init__(self, path: str) -> None:
        """Raises BadInput."""
        self.path = path
        root = Path(path).resolve()
        if not root.is_dir():
            raise BadInput(key="--from", found=path, expected="a folder, or hub")
        # With the folder's own name: `--from downloads/gsm8k` is as good as `--from downloads`.
        walked = ((Path(at), file) for at, _, names in os.walk(root, followlinks=True) for file in names)
        self._files = {f"/{root.name}/{(at / file).relative_to(root).as_posix()}": at / file for at, file in walked}

    def find(self, name: str, files: Files) -> tuple[str, ...]:
        """Those of the first pattern that any file meets, in the order of their names; () for none.

        Raises BadInput where they are several tables.
        """
        for pattern in files.names:
            met = sorted(path for path in self._files if fnmatchcase(path, f"*/{pattern}"))
            if not met:
                continue
            tables = {SHARD.sub("", path if "/*/" not in pattern else path.rpartition("/")[2]) for path in met}
            if len(tables) > 1:
                examples = ", ".join(str(self._files[path]) for path in met[:3])
                raise BadInput(
                    f"several files for {name}: {examples}; --file {name}=PATH chooses", key="--from", found=self.path
                )
            return tuple(str(self._files[path]) for path in met)
        return ()


def find_files(
    names: Sequence[str], origin: str, user_files: Mapping[str, str], show: Progress, *, partial: bool
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The files of each split (`musique.train`), and for those that are not to be had why.

    origin: a folder, or `hub`; user_files: a path for a split, which goes before it; partial: download also where
    something is on no hub. Raises BadInput for what is there and cannot be used, and where the hub cannot be reached.
    """
    for name, path in user_files.items():
        split_of(name)
        if name not in names:
            raise BadInput(
                f"not read here, which reads {', '.join(dict.fromkeys(names))}", key="--file", found=f"{name}={path}"
            )
        if not os.path.isfile(path):
            raise BadInput("no such file", key="--file", found=f"{name}={path}")
    folder = None if origin == HUB else Folder(origin)
    paths: dict[str, tuple[str, ...]] = {name: (path,) for name, path in user_files.items()}
    splits = {name: split_of(name)[1] for name in names if name not in user_files}
    missing: dict[str, str] = {}
    if folder is None:  # what no hub has is known before anything is downloaded
        missing = {name: f"on no hub: {split_of(name)[0].page}" for name, files in splits.items() if not files.hub}
        if missing and not partial:
            return paths, missing
    for done, (name, files) in enumerate(splits.items()):
        show("find", done, len(splits))
        if folder is not None and not (matches := folder.find(name, files)):
            missing[name] = f"no {' or '.join(files.names)}"
        elif folder is not None:
            paths[name] = matches
        elif files.hub:
            paths[name] = tuple(path for source in files.hub for path in _download(source, files.split))
    show("find", len(splits), len(splits))
    return paths, missing


def _download(source: str, split: str | None) -> list[str]:
    try:
        return download(source, split)
    except OutOfReach as error:
        way = "download it elsewhere and give its folder with --from DIR (`rlsys data list` names the files)"
        raise BadInput(f"{source} is out of reach ({error.reason}): {way}", key="--from", found="hub") from error


def open_source(name: str, paths: Sequence[str], show: Progress) -> Source:
    """With the digests of its files, which takes a second for each gigabyte or two. Raises BadInput."""
    kind, files = split_of(name)
    return Source(
        name=name,
        title=kind.title,
        licence=kind.licence,
        page=kind.page,
        files=tuple(paths),
        sha256=tuple(digest_of(Path(path), show) for path in paths),
        expected=files.count,
    )
