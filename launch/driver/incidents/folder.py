"""The folders of incidents in a run directory: their names, their number, and an archive of them for a bug report."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path

from launch.checks.shareable import Hider
from launch.driver.incidents.facts import FACTS, Facts, read_facts
from rlsys.errors import BadInput
from rlsys.files import whole_file

FOLDER = "incidents"
NAME = re.compile(r"\d{6}-[a-z_]+-[\w.-]+")
LARGEST = 2**20  # bytes of one file: more is no reading matter
LARGEST_BUNDLE = 64 * 2**20  # 64 of the largest files


def folder_name(step: int, kind: str, who: str) -> str:
    """000012-lost-rollout-0."""
    return f"{step:06d}-{kind}-{re.sub(r'[^A-Za-z0-9_]+', '-', who).strip('-')[:40] or 'run'}"


def make_folder(run: Path, step: int, kind: str, who: str, keep: int) -> Path:
    """A new one, for its user alone; the oldest beyond `keep` go. Raises OSError."""
    parent = run / FOLDER
    parent.mkdir(exist_ok=True)
    before = list_folders(run)
    for old in before[: max(0, len(before) + 1 - keep)]:
        shutil.rmtree(old, ignore_errors=True)
    name, number = folder_name(step, kind, who), 1
    while (folder := parent / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    folder.mkdir(mode=0o700)
    return folder


def list_folders(run: Path) -> list[Path]:
    """Oldest first."""
    parent = run / FOLDER
    folders = []
    with suppress(OSError):
        folders = [path for path in parent.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=lambda folder: (_began(folder), folder.name))


def find_folder(run: Path, name: str | None) -> Path:
    """The one of that name, or whose name begins so; None: the newest. Raises BadInput."""
    folders = list_folders(run)
    if not folders:
        raise BadInput("the run has no incident", where=run)
    if name is None:
        return folders[-1]
    exact = [folder for folder in folders if folder.name == name]
    matches = exact or [folder for folder in folders if folder.name.startswith(name)]
    if len(matches) != 1:
        has = ", ".join(folder.name for folder in folders[-5:])
        raise BadInput(f"{'no' if not matches else 'more than one'} such incident in {run}", key="ID", found=name,
                       expected=f"one of {has}")  # fmt: skip
    return matches[0]


def read_all(run: Path) -> list[tuple[Path, Facts | None]]:
    """None where it cannot be read."""
    incidents: list[tuple[Path, Facts | None]] = []
    for folder in list_folders(run):
        facts = None
        with suppress(OSError, BadInput):
            facts = read_facts(folder)
        incidents.append((folder, facts))
    return incidents


def write_bundle(folder: Path, target: Path, hider: Hider) -> int:
    """`target`, a .tar.gz of the folder, without secrets once more. Returns its bytes. Raises OSError."""
    total = 0
    with whole_file(target) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in sorted(entry for entry in folder.rglob("*") if entry.is_file() and not entry.is_symlink()):
            content = hider.hide(path.read_bytes()[:LARGEST].decode("utf-8", "replace")).encode()
            total += len(content)
            if total > LARGEST_BUNDLE:
                break
            entry = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            entry.size, entry.mtime, entry.mode = len(content), int(path.stat().st_mtime), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return target.stat().st_size


def _began(folder: Path) -> float:
    with suppress(OSError, BadInput):
        return read_facts(folder).time
    with suppress(OSError):
        return (folder / FACTS).stat().st_mtime
    return 0.0
