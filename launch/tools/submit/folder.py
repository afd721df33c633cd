"""What Ray would upload of the working folder: the files that .gitignore and .rayignore leave, and their bytes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envs.tasks.hub import SUFFIXES
from rlsys.errors import BadInput

MOST_BYTES = 100 * 2**20  # that the dashboard of Ray 2.60 takes in one request (DASHBOARD_CLIENT_MAX_SIZE)
MOST_FILES = 100_000  # a home folder, not a project: counting it takes minutes
NAMED = 3  # of the largest entries, where the folder is too large


@dataclass(frozen=True, slots=True)
class Upload:
    files: int
    size: int  # bytes; Ray packs without compression
    entries: Mapping[str, int]  # bytes by name of the folder's own entries
    left_out: frozenset[str]  # those of the folder's own entries of which nothing is uploaded


def measure_upload(folder: Path, show: Callable[[str, int, int | None], None]) -> Upload:
    """Through Ray's own walk, so that the two agree. Raises BadInput for a folder that is no project.

    show: called with what is counted, how many files, None.
    """
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env import packaging

    sizes: Counter[str] = Counter()
    files = 0

    def count(path: Path) -> None:
        nonlocal files
        if path.is_file():
            files += 1
            sizes[path.relative_to(folder).parts[0]] += path.stat().st_size
            if files > MOST_FILES:
                raise BadInput(f"has more than {MOST_FILES:,} files to upload: {REMEDY}", where=folder)
            if not files % 500:
                show("counting what is uploaded", files, None)

    excludes = [packaging._get_excludes(folder, get_runtime_env_default_excludes())]
    respects_git = os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0") != "1"
    logger = logging.getLogger("rlsys.submit")
    logger.setLevel(logging.ERROR)  # Ray names each ignore file that it reads
    try:
        packaging._dir_travel(folder, excludes, count, include_gitignore=respects_git, logger=logger)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=error.filename or folder) from error
    left_out = frozenset(os.listdir(folder)) - sizes.keys()
    return Upload(files, sum(sizes.values()), sizes, left_out)


REMEDY = "name what the run does not need in .rayignore, start from a smaller folder, or --no-upload on shared storage"


def check_size(upload: Upload, folder: Path) -> None:
    """Raises BadInput where Ray's dashboard would refuse it, after it was sent."""
    if upload.size < MOST_BYTES:
        return
    largest = sorted(upload.entries.items(), key=lambda entry: -entry[1])[:NAMED]
    listing = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in largest)
    limit = f"{upload.size / 1e6:,.0f} MB to upload ({listing}), Ray takes {MOST_BYTES / 1e6:,.0f}"
    raise BadInput(f"{limit}: {REMEDY}", where=folder)


def check_uploaded(paths: Mapping[str, str | None], upload: Upload, folder: Path) -> None:
    """Raises BadInput for data by a relative path that the job would not find: it lies in the folder and is not
    uploaded, or is not there.

    paths: by configuration key.
    """
    way = "an absolute path on storage that all nodes share"
    for key, path in paths.items():
        if path is None or Path(path).is_absolute():
            continue
        if not (folder / path).exists():
            if path.lower().endswith((*SUFFIXES, ".txt")):  # else it may be a name on the hub
                more = "it here (`rlsys train CONFIG --dry-run` says what makes it)"
                raise BadInput(
                    "is not in the folder that is uploaded", key=key, found=path, expected=f"{way}, or {more}"
                )
            continue
        top = Path(os.path.normpath(path)).parts[0]
        if top in upload.left_out or top == "..":
            raise BadInput(f"{top} is not uploaded (.rayignore, .gitignore)", key=key, found=path, expected=way)
