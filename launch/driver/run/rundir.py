"""The run directory: what a run leaves behind, and where a resumed one finds itself again.

    config.yaml  metrics.jsonl  evaluations.jsonl  journal.jsonl  trajectories/step-000012.jsonl  summary.json  wandb/
    checkpoints/step-000050/{learner/, hf/, driver.json}  generated/NAME.jsonl  .reserve

Every file that is replaced is written next to its place and renamed into it; a checkpoint exists when its folder has
its final name. One process at a time: the lock is the kernel's and goes with the process.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar

from launch.driver.checkpoints.beginning import KEPT
from launch.driver.checkpoints.checkpoint import (
    FOLDER,
    RESERVE,
    Damaged,
    DriverState,
    file_digests,
    read_digests,
    read_state,
    set_aside,
    step_of,
    write_state,
)
from launch.driver.checkpoints.proof import (
    CHECKPOINTS,
    GONE,
    checkpoint_seal,
    compare_checkpoint,
    compare_models,
    read_book,
)
from launch.driver.run.episodes import EpisodeFiles
from launch.run_dir.lines import read_lines
from launch.run_dir.names import EVALUATIONS, METRICS
from rlsys.errors import BadInput
from rlsys.files import REMOVED, is_there, link_or_copy, naming, remove_tree, rename_synced, replace_file, whole_lines
from rlsys.journal import Journal
from rlsys.jsonl import json_object, kind_of
from rlsys.seals import digest_of

T = TypeVar("T")

RESERVE_BYTES = 2**16  # for the end of the journal and the summary on a full disk
LOCK_TRIES, LOCK_PAUSE_S = 5, 0.05  # in all a quarter of a second: who looks at a lock holds it for a moment


class RunDir:
    def __init__(self, path: Path) -> None:
        """Create or open `path` and lock it. Raises BadInput when another process is at work in it."""
        self.path = path
        self._lock = open_locked(path / ".lock", "wb", f"--run-dir {path}", "another process is running in it")
        try:
            (path / "trajectories").mkdir(exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
        except OSError as error:
            self._lock.close()
            raise BadInput(f"cannot be written ({error.strerror})", where=error.filename) from error
        self.episodes = EpisodeFiles(path / "trajectories")
        self._metrics: TextIO | None = None

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    def generated_path(self, stage: str) -> Path:
        """The trajectories that a generate stage keeps; next to it lie all that it played, and their pairs."""
        return self.path / "generated" / f"{stage}.jsonl"

    def close(self) -> None:
        if self._metrics is not None:
            with suppress(OSError):  # a full disk: what could not be flushed has been reported, and comes here again
                self._metrics.close()
        self._lock.close()

    @contextmanager
    def removed_if_refused(self) -> Iterator[None]:
        """A start that is refused leaves no empty directory, which the next one would pass over for another name."""
        try:
            yield
        except BaseException:
            with suppress(OSError):  # it is not empty: an earlier start has used it
                (self.path / "checkpoints").rmdir()
                (self.path / "trajectories").rmdir()
                if not any(entry.name != ".lock" for entry in self.path.iterdir()):
                    (self.path / ".lock").unlink()
                    self.path.rmdir()
            raise

    def keep_reserve(self) -> None:
        """Room for the end of the journal and the summary, should the disk be full by then."""
        with naming(self.path / RESERVE):
            (self.path / RESERVE).write_bytes(os.urandom(RESERVE_BYTES))

    def release_reserve(self) -> None:
        (self.path / RESERVE).unlink(missing_ok=True)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """Complete ones, oldest first."""
        folders = [path for path in (self.path / "checkpoints").iterdir() if FOLDER.fullmatch(path.name)]
        return sorted(folders, key=step_of)

    def newest(self) -> Path | None:
        return next(reversed(self.checkpoints()), None)

    def checkpoint_named(self, name: str) -> Path:
        """The checkpoint that `--resume-from` asks for: "step-000050"."""
        checkpoints = self.checkpoints()
        checkpoint = next((path for path in checkpoints if path.name == Path(name).name), None)
        if checkpoint is None:
            has = ", ".join(path.name for path in checkpoints) or "none"
            raise BadInput(f"no such checkpoint in {self.path} (it has {has})", key="--resume-from", found=name)
        return checkpoint

    def load_state(self, checkpoint: Path) -> DriverState:
        """Where the driver was. Raises BadInput where the checkpoint is damaged, and offers the one before it."""
        try:
            return read_state(checkpoint)
        except Damaged as error:
            raise BadInput(f"{error}; {self._instead_of(checkpoint)}") from error

    def verify(self, checkpoint: Path, say: Callable[[str], None]) -> bool:
        """Whether it carries digests to compare its files with. Raises BadInput where it, or a model under it, is not
        what an audit would accept."""
        book = read_book(self.journal)
        try:
            compared = compare_checkpoint(checkpoint, book, say)
        except Damaged as error:
            raise BadInput(f"{error}; {self._instead_of(checkpoint)}") from error
        try:
            compare_models(self.path, book, say)
        except Damaged as error:  # every checkpoint of the run may stand on it
            raise BadInput(f"{error}; restore the folder, or begin another --run-dir") from error
        return compared

    def seal_newest(self, journal: Journal) -> None:
        """Seal the newest checkpoint again: its seal is among the journal rows that continuing from it drops."""
        newest = self.newest()
        files = read_digests(newest) if newest is not None else None
        if newest is not None and files is not None:
            journal.seal(f"{CHECKPOINTS}/{newest.name}", checkpoint_seal(step_of(newest), files))

    def _instead_of(self, damaged: Path) -> str:
        older = [path.name for path in self.checkpoints() if step_of(path) < step_of(damaged)]
        if not older:
            return "there is no older checkpoint: restore the file, or begin another --run-dir"
        return f"restore the file, or continue from the checkpoint before it with --resume-from {older[-1]}"

    def set_aside_after(self, checkpoint: Path) -> list[Path]:
        """Newer checkpoints are not continued any more. They are kept, under another name."""
        aside: list[Path] = []
        for newer in [path for path in self.checkpoints() if step_of(path) > step_of(checkpoint)]:
            aside.append(set_aside(newer))
        return aside

    def begin_checkpoint(self, step: int) -> Path:
        """An empty folder to save into; a half-written one of an earlier process is removed."""
        for pattern in (".step-*", f"{REMOVED}*"):
            for leftover in (self.path / "checkpoints").glob(pattern):
                shutil.rmtree(leftover, ignore_errors=True)
        folder = self.path / "checkpoints" / f".step-{step:06d}.tmp"
        folder.mkdir()
        return folder

    def commit_checkpoint(
        self,
        folder: Path,
        state: DriverState,
        keep: int,
        unwanted: Callable[[], bool] = lambda: False,
        reference: Path | None = None,
        seal: Callable[[str, str], None] = lambda name, digest: None,
    ) -> Path | None:
        """Make it the newest, with the digests of its files and on the disk, then drop all but the `keep` newest.

        unwanted: asked on the way; where it says so, nothing is made of the folder, and None returned. reference: of
        `driver/checkpoints/beginning.py`, which the checkpoint has to hold. seal: writes a row of the journal, which is
        on the disk when it returns: a checkpoint that has its name has its seal.
        """
        if reference is not None:
            shutil.copytree(reference, folder / KEPT, copy_function=link_or_copy)
        files = file_digests(folder, unwanted)
        if files is None or unwanted():
            return None
        write_state(folder, state, files)
        place = folder.with_name(f"step-{state.step:06d}")
        try:
            seal(f"{CHECKPOINTS}/{place.name}", checkpoint_seal(state.step, files))
            final = rename_synced(folder, place)
        except BaseException:
            with suppress(OSError):  # the same full disk: the row is written with the others, once there is room
                seal(f"{CHECKPOINTS}/{place.name}", GONE)
            raise
        for old in self.checkpoints()[:-keep]:
            seal(f"{CHECKPOINTS}/{old.name}", GONE)
            remove_tree(old)
        return final

    def renew_checkpoint(self, checkpoint: Path, state: DriverState) -> None:
        """Write the driver's newer state into a checkpoint whose weights are still the current ones."""
        files = read_digests(checkpoint)
        write_state(checkpoint, state if files is not None else replace(state, chain=""), files)

    # -- rows and trajectories ----------------------------------------------------------------------------------------

    def rewind_metrics(self, step: int) -> list[int]:
        """Drop the rows of steps that no surviving weights have seen, and a last one torn by a crash.

        Returns the steps up to this one that have no row of metrics. Raises BadInput for a line before them that is no
        row.
        """
        missing = set(range(1, step + 1))
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        for path in (self.path / METRICS, self.path / EVALUATIONS):
            if not is_there(path):
                continue
            rows: list[bytes] = []
            for number, line in whole_lines(path):
                if (row_step := _step_of(line, f"{path} line {number}")) > step:
                    break  # rows stand in the order of their steps
                rows.append(line)
                if path.name == METRICS:
                    missing.discard(int(row_step))
            replace_file(path, b"".join(rows))
        self.episodes.rewind(step)
        return sorted(missing)

    def log(self, row: Mapping[str, Any]) -> str:
        """Into metrics.jsonl. Returns the digest of its line (`rlsys.seals`)."""
        if self._metrics is None:
            self._metrics = (self.path / METRICS).open("a")
        with naming(self.path / METRICS):
            line = json.dumps(row)
            self._metrics.write(line + "\n")
            self._metrics.flush()
        return digest_of(line.encode())

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl that a stage has so far."""
        return [row for row in self._lines(METRICS) if row["stage"] == stage]

    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of evaluations.jsonl."""
        return self._lines(EVALUATIONS)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """Raises BadInput for a damaged one, and OSError where the disk does not give it, which is no bad input."""
        path = self.path / name
        try:
            return list(read_lines(path)) if path.exists() else []
        except BadInput as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise

    def save_evaluation(self, row: Mapping[str, Any]) -> str:
        """Into evaluations.jsonl, in the order of steps, in place of one that a killed process made. Returns the digest
        of its line."""
        path, rows = self.path / EVALUATIONS, self.evaluations()
        point = {key: row[key] for key in ("step", "stage", "when")}.items()
        lines = [*(line for line in rows if not point <= line.items()), row]
        replace_file(path, "".join(f"{json.dumps(line)}\n" for line in sorted(lines, key=lambda line: line["step"])))
        return digest_of(json.dumps(row).encode())

    def save_result(self, name: str, result: Mapping[str, Any]) -> str:
        """evaluations/NAME.json: what `rlsys eval --output` writes, of an evaluation of the run. Returns its digest."""
        folder = self.path / "evaluations"
        folder.mkdir(exist_ok=True)
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        replace_file(folder / f"{name}.json", text)
        return digest_of(text.encode())

    def write(self, name: str, text: str) -> None:
        replace_file(self.path / name, text)


def sample_groups(groups: Sequence[T], group_size: int, episodes: int | None) -> list[T]:
    """Some of the groups, spread evenly over all, with at most so many episodes; one at least, unless that is 0."""
    if episodes is None or len(groups) * group_size <= episodes:
        return list(groups)
    count = min(max(episodes // group_size, 1), episodes)
    return [groups[place * len(groups) // count] for place in range(count)]


def open_locked(path: Path, mode: str, name: str, conflict: str) -> IO[bytes]:
    """The file, open, for this process alone. Raises BadInput: `name`, and `conflict` where another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: IO[bytes] = path.open(mode)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", where=name) from error
    try:
        _lock_soon(file)
    except OSError as error:
        file.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise BadInput(conflict, where=name) from error
        raise BadInput(
            f"its file system cannot lock files ({error.strerror}), which keeps other processes out",
            where=name,
            expected="one with flock (Lustre: mounted with -o flock; NFS: version 4)",
        ) from error
    return file


def _lock_soon(file: IO[bytes]) -> None:
    """Raises OSError. A look whether a run is in progress (`launch.run_dir.state`) holds its lock for a moment."""
    for _ in range(LOCK_TRIES - 1):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(LOCK_PAUSE_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _step_of(line: bytes, where: str) -> float:
    step = json_object(line, where).get("step")
    if not isinstance(step, int | float):
        raise BadInput(f"no row of metrics: step is {kind_of(step)}", where=where, expected="a number")
    return step
