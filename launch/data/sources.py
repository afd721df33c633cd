"""The files of a set's split: given by hand, found in a folder, or downloaded from the hub."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from envs.tasks.hub import SHARD, OutOfReach, download
from launch.data.manifest import Source, digest_of
from launch.data.records import Files, Progress
from launch.data.sets import split_of
from rlsys.errors import BadInput

HUB = "hub"


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
                shown = ", ".join(str(self._files[path]) for path in met[:3])
                raise BadInput(
                    f"several files for {name}: {shown}; --file {name}=PATH chooses", key="--from", found=self.path
                )
            return tuple(str(self._files[path]) for path in met)
        return ()


def find_files(
    names: Sequence[str], origin: str, given: Mapping[str, str], show: Progress, *, partial: bool
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The files of each split (`musique.train`), and for those that are not to be had why.

    origin: a folder, or `hub`; given: a path for a split, which goes before it; partial: download also where something
    is on no hub. Raises BadInput for what is there and cannot be used, and where the hub cannot be reached.
    """
    for name, path in given.items():
        split_of(name)
        if name not in names:
            raise BadInput(
                f"not read here, which reads {', '.join(dict.fromkeys(names))}", key="--file", found=f"{name}={path}"
            )
        if not os.path.isfile(path):
            raise BadInput("no such file", key="--file", found=f"{name}={path}")
    folder = None if origin == HUB else Folder(origin)
    found: dict[str, tuple[str, ...]] = {name: (path,) for name, path in given.items()}
    wanted = {name: split_of(name)[1] for name in names if name not in given}
    missing: dict[str, str] = {}
    if folder is None:  # what no hub has is known before anything is downloaded
        missing = {name: f"on no hub: {split_of(name)[0].page}" for name, files in wanted.items() if not files.hub}
        if missing and not partial:
            return found, missing
    for done, (name, files) in enumerate(wanted.items()):
        show("find", done, len(wanted))
        if folder is not None and not (there := folder.find(name, files)):
            missing[name] = f"no {' or '.join(files.names)}"
        elif folder is not None:
            found[name] = there
        elif files.hub:
            found[name] = tuple(path for each in files.hub for path in _downloaded(each, files.split))
    show("find", len(wanted), len(wanted))
    return found, missing


def _downloaded(source: str, split: str | None) -> list[str]:
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
