"""The run directory: what a run leaves behind, and where a resumed one finds itself again.

    config.yaml  metrics.jsonl  evaluations.jsonl  journal.jsonl  trajectories/step-000012.jsonl  summary.json  wandb/
    checkpoints/step-000050/{learner/, hf/, driver.json}  generated/NAME.jsonl

Every file that is replaced is written beside its place and renamed into it; a checkpoint exists when its folder has its
final name. One process at a time: the lock is the kernel's and goes with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO

from launch.run.cluster import inside_ray_job
from rlsys.errors import BadInput
from rlsys.jsonl import line_of
from rlsys.records import record_of, to_json
from rlsys.types import Group

CHECKPOINT = re.compile(r"step-(\d{6,})")


@dataclass(slots=True, kw_only=True)
class DriverState:
    """Everything the driver needs to go on from a checkpoint; saved as `driver.json`."""

    step: int = 0  # optimizer steps over all stages
    stage_index: int = 0
    stage_step: int = 0
    version: int = 0  # of the weights; counts published versions
    next_sequence: int = 0  # in this stage
    open_sequences: list[int] = field(default_factory=list)  # started, not trained: started again on resuming
    mark: int = 0  # journal rows that led here
    wall_s: float = 0.0
    generated: int = 0  # tokens sampled in the episodes that lie in files: of steps, evaluations, generate stages
    discarded: int = 0  # tokens of attempts that broke and were played again
    lost_tokens: int = 0  # tokens that workers had sampled for groups which they did not finish before they died
    trained: int = 0
    lag_max: int = 0
    lag_sum: float = 0.0
    lag_count: int = 0
    reward_first: float | None = None
    reward_last: float | None = None
    publish_s: list[float] = field(default_factory=list)
    restarts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)  # trajectories by kind; `retried`: broke, tried again
    eval_before: dict[str, float] = field(default_factory=dict)
    eval_after: dict[str, float] = field(default_factory=dict)
    # by "before" and "after": what the numbers are, and by play how many episodes there were, and how many failed
    eval_measure: dict[str, str] = field(default_factory=dict)
    eval_episodes: dict[str, dict[str, int]] = field(default_factory=dict)
    eval_failures: dict[str, dict[str, int]] = field(default_factory=dict)
    played: dict[str, dict[str, float]] = field(default_factory=dict)  # by generate stage: trajectories, kept, pairs
    reference: list[float] = field(default_factory=list)  # of a dpo stage's held-out answers, when it began
    stage_s: dict[str, float] = field(default_factory=dict)
    health: list[dict[str, Any]] = field(default_factory=list)  # of launch.run.health: one for each Finding

    @property
    def evaluated_before(self) -> bool:
        return bool(self.eval_before) or "before" in self.eval_measure  # too many may have failed to give a number


class RunDir:
    def __init__(self, path: Path) -> None:
        """Create or open `path` and lock it. Raises BadInput when another process is at work in it."""
        self.path = path
        self._lock = locked(path / ".lock", "wb", f"--run-dir {path}", "another process is running in it")
        (path / "trajectories").mkdir(exist_ok=True)
        (path / "checkpoints").mkdir(exist_ok=True)
        self._metrics: TextIO | None = None

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    def generated(self, stage: str) -> Path:
        """The trajectories that a generate stage keeps; beside it lie all that it played, and their pairs."""
        return self.path / "generated" / f"{stage}.jsonl"

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self._lock.close()

    def checkpoints(self) -> list[Path]:
        """Complete ones, oldest first."""
        found = [path for path in (self.path / "checkpoints").iterdir() if CHECKPOINT.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))

    def newest(self) -> Path | None:
        return next(reversed(self.checkpoints()), None)

    def begin_checkpoint(self, step: int) -> Path:
        """An empty folder to save into; a half-written one of an earlier process is removed."""
        for left in (self.path / "checkpoints").glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)
        folder = self.path / "checkpoints" / f".step-{step:06d}.tmp"
        folder.mkdir()
        return folder

    def commit_checkpoint(self, folder: Path, state: DriverState, keep: int) -> Path:
        """Make it the newest, then drop all but the `keep` newest."""
        _write(folder / "driver.json", json.dumps(asdict(state), indent=1))
        final = folder.parent / f"step-{state.step:06d}"
        if final.exists():  # the same step again, at a stage's end: the newer state wins
            replaced = final.with_name(f".{final.name}.old")
            final.rename(replaced)
            folder.rename(final)
            shutil.rmtree(replaced)
        else:
            folder.rename(final)
        for old in self.checkpoints()[:-keep]:
            shutil.rmtree(old)
        return final

    def load_state(self, checkpoint: Path) -> DriverState:
        return DriverState(**json.loads((checkpoint / "driver.json").read_text()))

    def rewind_metrics(self, step: int) -> None:
        """Drop the rows of steps that no surviving weights have seen."""
        for path in (self.path / "metrics.jsonl", self.path / "evaluations.jsonl"):
            if path.exists():
                kept = [line for line in path.read_text().splitlines() if _step_of(line) <= step]
                _write(path, "".join(line + "\n" for line in kept))

    def log(self, row: Mapping[str, Any]) -> None:
        if self._metrics is None:
            self._metrics = (self.path / "metrics.jsonl").open("a")
        self._metrics.write(json.dumps(row) + "\n")
        self._metrics.flush()

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl that a stage has so far."""
        path = self.path / "metrics.jsonl"
        rows = map(json.loads, path.read_text().splitlines() if path.exists() else ())
        return [row for row in rows if row["stage"] == stage]

    def save_evaluation(self, row: Mapping[str, Any]) -> None:
        """Into evaluations.jsonl, in the place of the one that a killed process made at the same point."""
        path = self.path / "evaluations.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        point = {key: row[key] for key in ("step", "stage", "when")}.items()
        kept = [line for line in lines if not point <= json.loads(line).items()]
        _write(path, "".join(f"{line}\n" for line in [*kept, json.dumps(row)]))

    def save_trajectories(
        self, name: str, groups: Iterable[Group], advantages: Mapping[tuple[int, int], float]
    ) -> None:
        """One trajectory a line. `advantages` by (sequence, sibling)."""
        records = (
            record_of(each, group, advantage=advantages.get((group.ticket.sequence, each.sibling)))
            for group in groups
            for each in group.trajectories
        )
        _write(self.path / "trajectories" / f"{name}.jsonl", b"".join(line_of(to_json(each)) for each in records))

    def write(self, name: str, text: str) -> None:
        _write(self.path / name, text)


def locked(path: Path, mode: str, name: str, taken: str) -> IO[bytes]:
    """The file, open, for this process alone. Raises BadInput: `name`, and `taken` where another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: IO[bytes] = path.open(mode)
    except OSError as error:
        raise BadInput(f"{name}: cannot be written ({error.strerror})") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BadInput(f"{name}: {taken}") from error
    return file


def choose_run_dir(name: str, config: str, given: str | None, must_resume: bool) -> Path:
    """`--run-dir`, else the newest unfinished runs/NAME of this very configuration, else the next free runs/NAME-N.

    name: of the recipe. config: the text of the configuration, as a run directory keeps it.
    """
    if inside_ray_job() and (given is None or not Path(given).is_absolute()):
        raise BadInput(
            "inside a Ray job give an absolute --run-dir on shared storage: "
            "a relative one vanishes with the job's folder"
        )
    if given is not None:
        path = Path(given).resolve()  # actors work elsewhere
        if must_resume and not path.is_dir():
            raise BadInput(f"--resume: there is no run directory {given}")
        return path
    base = Path("runs").resolve() / name
    number, path = 1, base
    while path.exists():
        saved, summary = path / "config.yaml", path / "summary.json"
        finished = summary.is_file() and '"status": "done"' in summary.read_text()
        if saved.is_file() and saved.read_text() == config and not finished:
            return path
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    if must_resume:
        raise BadInput(f"--resume: no unfinished run of this configuration under {base.parent}/; give its --run-dir")
    return path


def refuse_foreign(path: Path) -> None:
    """Raises BadInput for a run that another user began, or whose checkpoints hold a file of another user.

    To go on from it is to import the modules that its config.yaml names and to hand its files to many parsers.
    """
    saved, kept = path / "config.yaml", list((path / "checkpoints").rglob("*"))
    if not saved.is_file() and not kept:
        return  # nothing was begun in it
    for file in (path, saved, *kept):
        try:
            owner = file.stat().st_uid
        except FileNotFoundError:  # a link to nothing, or gone meanwhile
            continue
        if owner not in trusted_owners():
            what = "it" if file == path else file.relative_to(path)
            raise BadInput(
                f"--run-dir {path}: {what} belongs to {_user(owner)}: copy the run to continue it, or say that you "
                "trust whoever wrote it with --trust-run-dir (docs/trust.md)"
            )


def trusted_owners() -> tuple[int, ...]:
    """Ourselves, and root, who can do anything here already."""
    return (os.geteuid(), 0)


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except ValueError:  # a line torn by a crash
        return float("inf")


def _write(path: Path, content: str | bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
