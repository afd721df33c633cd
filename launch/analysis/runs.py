"""Run directories as `rlsys analyse` sees them: what was configured, and rows of numbers by step.

The configuration is read as plain YAML: a run of somebody else may name modules, which nobody imports for a picture.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlsys.errors import BadInput
from rlsys.files import is_packed
from rlsys.jsonl import json_object
from rlsys.untrusted import visible

SEED_KEYS = ("seed", "wandb")  # in which runs of one setting may differ
MAPPINGS = ("about", "eval", "reward")  # keys that are looked into


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Numbers after a step: of metrics.jsonl, of an evaluation, or of the episodes of a file."""

    stage: str
    step: int  # over all stages
    stage_step: int
    values: Mapping[str, float]
    when: str = ""  # of an evaluation: before, during, after, eval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # each is itself alone: a key of tables
class Run:
    path: Path
    config: Mapping[str, Any]
    rows: tuple[Measurement, ...]
    evaluations: tuple[Measurement, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        """In the order of the recipe."""
        return tuple(visible(str(stage["name"])) for stage in self.config["stages"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedGroup:
    """Runs that differ in their seed alone."""

    label: str
    runs: tuple[Run, ...]


def read_run(path: Path, wanted: Callable[[str], bool]) -> Run:
    """wanted: the keys of metrics.jsonl to keep. Raises BadInput for what is no run directory, or has no numbers."""
    config = _config(path)
    rows = tuple(_rows(path / "metrics.jsonl", wanted))
    begins: dict[str, int] = {}
    for row in rows:
        begins.setdefault(row.stage, row.step - row.stage_step)
    evaluations = tuple(_evaluations(path / "evaluations.jsonl", begins))
    if not rows and not evaluations:
        raise BadInput(f"{path}: no step and no evaluation in it yet")
    return Run(path=path, config=config, rows=rows, evaluations=evaluations)


def _config(path: Path) -> Mapping[str, Any]:
    file = path / "config.yaml"
    if not file.is_file():
        missing = "no config.yaml in it" if path.is_dir() else "there is no such directory"
        raise BadInput(f"{path}: {missing}: expected a run directory of rlsys train")
    try:
        config = yaml.safe_load(file.read_bytes())
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise BadInput(f"{file}: not readable as YAML ({str(error).splitlines()[0]})") from error
    stages = config.get("stages") if isinstance(config, dict) else None
    if not isinstance(stages, list) or not all(isinstance(each, dict) and "name" in each for each in stages):
        raise BadInput(f"{file}: no list of stages: not the configuration of a run of rlsys")
    for key in MAPPINGS:
        if any(not isinstance(each.get(key) or {}, dict) for each in (config, *stages)):
            raise BadInput(f"{file}: {key} has no keys: not the configuration of a run of rlsys")
    return dict(config)


def _rows(path: Path, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    for number, stage, step, found in _steps(path):
        stage_step = found.get("stage_step")
        if not isinstance(stage_step, int):
            raise BadInput(f"{path} line {number}: no row of a run: stage_step={stage_step!r}")
        yield Measurement(stage=stage, step=step, stage_step=stage_step, values=numbers(found, wanted))


def _evaluations(path: Path, begins: Mapping[str, int]) -> Iterator[Measurement]:
    for _, stage, step, found in _steps(path):
        yield Measurement(
            stage=stage,
            step=step,
            stage_step=step - begins.get(stage, step),
            when=str(found.get("when")),
            values=numbers(found, lambda key: "/" in key),
        )


def _steps(path: Path) -> Iterator[tuple[int, str, int, dict[str, Any]]]:
    if not path.exists():
        return
    for number, found in enumerate(objects(path), start=1):
        stage, step = found.get("stage"), found.get("step")
        if type(step) is not int or not isinstance(stage, str):
            raise BadInput(f"{path} line {number}: no row of a run: step={step!r}, stage={stage!r}")
        yield number, visible(stage), step, found


def numbers(found: Mapping[str, Any], wanted: Callable[[str], bool]) -> dict[str, float]:
    """Those that are finite; a whole number of hundreds of digits is none either."""
    given = {visible(key): own for key, own in found.items() if type(own) in (int, float) and wanted(key)}
    return {key: float(own) for key, own in given.items() if abs(own) <= sys.float_info.max}


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a run, one at a time, without a last one that is not there whole yet: it may still be going on.

    Raises BadInput naming the file, and the line where it is damaged.
    """
    try:
        for number, line in enumerate(_lines(path), start=1):
            try:
                yield json_object(line, f"{path} line {number}")
            except BadInput:
                if line.endswith(b"\n"):
                    raise
                return
    except (OSError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = is_packed(file.read(1))
        file.seek(0)
        if not packed:
            yield from file
            return
        with gzip.open(file) as unpacked:
            try:
                yield from unpacked
            except EOFError:  # the copy of a file that ends in the middle
                return


# -- settings ----------------------------------------------------------------------------------------------------------


def settings(runs: Sequence[Run], labels: Sequence[str]) -> tuple[SeedGroup, ...]:
    """Runs by their label, one for each run; without labels by their configuration but the seed. Raises BadInput."""
    paths = [run.path.resolve() for run in runs]
    twice = next((run.path for run, own in zip(runs, paths, strict=True) if paths.count(own) > 1), None)
    if twice is not None:
        raise BadInput(f"{twice}: given twice: expected each run once, for it would count as two seeds")
    if labels:
        if len(labels) != len(runs):
            raise BadInput(f"--labels: {len(labels)} for {len(runs)} runs: expected one for each (seeds share theirs)")
        named = dict.fromkeys(labels)
        return tuple(
            SeedGroup(
                label=visible(label), runs=tuple(run for run, own in zip(runs, labels, strict=True) if own == label)
            )
            for label in named
        )
    groups: list[tuple[Mapping[str, Any], list[Run]]] = []
    for run in runs:
        config = {key: value for key, value in run.config.items() if key not in SEED_KEYS}
        same = next((members for own, members in groups if own == config), None)
        if same is None:
            groups.append((config, [run]))
        else:
            same.append(run)
    names = _names([config for config, _ in groups], [members[0].path for _, members in groups])
    return tuple(
        SeedGroup(label=visible(name), runs=tuple(members)) for name, (_, members) in zip(names, groups, strict=True)
    )


def _names(configs: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> list[str]:
    """What tells them apart: the recipe's name, else the keys that differ where they are few, else the directory."""
    names = [str(config.get("name")) for config in configs]
    if len(set(names)) == len(names):
        return names
    flats = [dict(_flat(config)) for config in configs]
    keys = sorted({key for flat in flats for key in flat})
    differing = [key for key in keys if len({repr(flat.get(key)) for flat in flats}) > 1]
    if 1 <= len(differing) <= 2:
        return [", ".join(f"{key}={flat.get(key)}" for key in differing) for flat in flats]
    short = [path.name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """learner.lr, stages.rl.steps: a stage is known by its name."""
    if isinstance(value, dict):
        for key, own in value.items():
            yield from _flat(own, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value and all(isinstance(each, dict) and "name" in each for each in value):
        for each in value:
            yield from _flat(each, f"{prefix}.{each['name']}")
    else:
        yield prefix, value
