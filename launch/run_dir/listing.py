"""Run directories as lines of a list: what a few small files and the end of the large ones say, importing nothing.

A directory may be another user's, damaged, or that of a run in progress: what cannot be known is null.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.run_dir.lines import DamageLog, finite_numbers, read_lines_if_there, read_object, read_tail
from launch.run_dir.names import EVALUATIONS, EVENTS, METRICS
from launch.run_dir.rows import read_last_step
from launch.run_dir.runs import read_config
from launch.run_dir.state import State, find_state, is_locked
from rlsys.errors import BadInput
from rlsys.untrusted import visible

DEEPEST = 3  # folders below the one that is listed: runs/study/setting/seed-0
MAIN = ("accuracy", "mean_reward")  # the number of a play, the first that it has
ACTIVE = (METRICS, EVENTS, "journal.jsonl", "summary.json", "run.json")  # whose times say when it was


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChange:
    """Of the newest evaluation: ResultChange(name="greedy/accuracy", value=0.93, first=0.72)."""

    name: str
    value: float
    first: float | None  # of the first evaluation with this number; None where it is the only one


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    path: Path
    state: State | None  # None: `problem` says why it is not known
    recipe: str
    seed: int | None
    step: int
    steps: int | None  # planned, over all stages; None where a stage counts in epochs of what is not made yet
    result: ResultChange | None
    active: float  # seconds since 1970, of the last sign of it
    size: int  # bytes on disk
    problem: str = ""


def list_runs(folder: Path) -> list[ListedRun]:
    """Those in the folder and below it, the latest last; the folder itself where it is one."""
    return sorted((list_run(path) for path in find_runs(folder)), key=lambda run: (run.active, run.path))


def is_run(folder: Path) -> bool:
    """Whether it has a config.yaml next to what a run writes. Not where it may not be entered."""
    markers = (os.path.exists(folder / name) for name in (".lock", "checkpoints"))
    return os.path.exists(folder / "config.yaml") and any(markers)


def find_runs(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Those in the folder and below it. Links are not followed."""
    if is_run(folder):
        yield folder
        return
    if depth > DEEPEST:
        return
    try:
        inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in inside:
        if not name.startswith("."):
            yield from find_runs(folder / name, depth + 1)


def list_run(path: Path) -> ListedRun:
    """Fault boundary: a directory that cannot be read is a line that says so."""
    damage = DamageLog()
    active, size = _last_time(path), size_of(path)
    try:
        config = read_config(path)
        locked = is_locked(path)
        last = read_last_step(path)
        steps = last.step if last is not None else None
        summary = read_object(path / "summary.json", damage)
        state = find_state(locked=locked, summary=summary, events=list(read_tail(path / EVENTS)), last_step=steps)
        seed = config.get("seed")
        return ListedRun(
            path=path,
            state=state,
            recipe=visible(str(config.get("name", "")))[:60],
            seed=seed if type(seed) is int else None,
            step=steps or 0,
            steps=_planned(config),
            result=find_result(read_lines_if_there(path / EVALUATIONS, damage)),
            active=active,
            size=size,
        )
    except (BadInput, OSError, ValueError) as error:
        return ListedRun(
            path=path, state=None, recipe="", seed=None, step=0, steps=None, result=None, active=active, size=size,
            problem=visible(str(error)),
        )  # fmt: skip


def find_result(evaluations: Iterable[Mapping[str, Any]]) -> ResultChange | None:
    """Of the first play of the newest evaluation, compared with the first one of the same prompts."""
    rows = [row for row in evaluations if _numbers(row)]
    newest = _numbers(rows[-1]) if rows else {}
    name = next((key for main in MAIN for key in newest if key.endswith(f"/{main}")), None)
    if name is None:
        return None
    play, prompts = name.rpartition("/")[0], _mapping(rows[-1].get("prompts"))
    values = [
        numbers[name]
        for row in rows
        if name in (numbers := _numbers(row)) and _mapping(row.get("prompts")).get(play) == prompts.get(play)
    ]
    return ResultChange(name=name, value=values[-1], first=values[0] if len(values) > 1 else None)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The main numbers of an evaluation's plays."""
    return finite_numbers(row, lambda key: "/" in key and key.rpartition("/")[2] in MAIN)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def size_of(path: Path) -> int:
    """Bytes on disk below it; a file with several names counts once."""
    inodes: set[tuple[int, int]] = set()
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                stat = os.lstat(os.path.join(folder, name))
            except OSError:  # gone meanwhile
                continue
            if (stat.st_dev, stat.st_ino) not in inodes:
                inodes.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total


def _planned(config: Mapping[str, Any]) -> int | None:
    counts = [stage.get("steps", 0) for stage in config["stages"]]
    by_epochs = any(stage.get("epochs") is not None for stage in config["stages"])
    return None if by_epochs or any(type(count) is not int for count in counts) else sum(counts)


def _last_time(path: Path) -> float:
    times = []
    for name in ACTIVE:
        with suppress(OSError):
            times.append((path / name).stat().st_mtime)
    with suppress(OSError):
        return max(times) if times else path.stat().st_mtime
    return 0.0
