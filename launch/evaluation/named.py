"""What `rlsys compare` is given: files of results and run directories, and what each is called."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.evaluation.evaluate import result_name
from rlsys.errors import BadInput
from rlsys.jsonl import json_object
from rlsys.visible import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Named(name="sft", files=(Path("runs/a/evaluations/sft-after.json"), ..)): one of each seed."""

    name: str
    files: tuple[Path, ...]


def named(given: Sequence[str]) -> list[Named]:
    """Of RESULT, RUN_DIR, or NAME=ONE,ANOTHER. Raises BadInput for a run without results, and two of one name."""
    split = [("", [word]) if os.path.exists(word) else _split(word) for word in given]
    files = [tuple(_file(Path(path)) for path in paths) for _, paths in split]
    alone = [paths[0] for (name, _), paths in zip(split, files, strict=True) if not name]
    ways = WAYS[1:] if any(os.path.isdir(word) for word in given) else WAYS
    calling = next((each for each in ways if len({each(path) for path in alone}) == len(alone)), str)
    found = [
        Named(name=visible(name or calling(paths[0])), files=paths)
        for (name, _), paths in zip(split, files, strict=True)
    ]
    twice = [name for name, count in Counter(each.name for each in found).items() if count > 1]
    if twice:
        raise BadInput(f"{', '.join(twice)}: two results of one name, expected NAME=FILE to tell them apart")
    return found


def _split(word: str) -> tuple[str, list[str]]:
    name, is_named, files = word.partition("=")
    return (name, files.split(",")) if is_named else ("", [word])


def _file(path: Path) -> Path:
    """Of a run directory its last evaluation."""
    if not path.is_dir():
        return path
    try:
        lines = (path / "evaluations.jsonl").read_bytes().splitlines()
    except OSError as error:
        raise BadInput(
            f"{path}: a folder without evaluations.jsonl: expected a run directory or a JSON file"
        ) from error
    if not lines:
        raise BadInput(f"{path}: no evaluation in it yet")
    last = json_object(lines[-1], f"{path}/evaluations.jsonl line {len(lines)}")
    stage, when, step = (last.get(key) for key in ("stage", "when", "step"))
    if not (isinstance(stage, str) and isinstance(when, str) and type(step) is int):
        raise BadInput(f"{path}/evaluations.jsonl line {len(lines)}: expected stage, when and step")
    return path / "evaluations" / f"{result_name(stage, when, step)}.json"


def _run(path: Path) -> str:
    """Of RUN/evaluations/rl-after.json RUN; of another file its folder."""
    folder = Path(os.path.abspath(path)).parent
    return (folder.parent if folder.name == "evaluations" else folder).name


# How files without a name of their own are called: the first way in which no two are called the same. Where a run is
# given as such, it gives its name.
WAYS: tuple[Callable[[Path], str], ...] = (
    lambda path: path.stem,
    _run,
    lambda path: f"{_run(path)}/{path.stem}",
)
