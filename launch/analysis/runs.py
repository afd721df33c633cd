"""Run directories as `rlsys analyse` sees them: what was configured, and rows of numbers by step.

The configuration is read as plain YAML: a run of another user may name modules, and a picture must not import them.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlsys.errors import BadInput, require
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

    @property
    def at(self) -> tuple[int, str, str]:
        """When in the run it was measured."""
        return self.step, self.stage, self.when


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
    rows = tuple(_measurements(path / "metrics.jsonl", wanted))
    starts = {row.stage: row.step - row.stage_step for row in reversed(rows)}
    evaluations = tuple(_measurements(path / "evaluations.jsonl", lambda key: "/" in key, starts))
    if not rows and not evaluations:
        raise BadInput("no step and no evaluation in it yet", where=path)
    return Run(path=path, config=config, rows=rows, evaluations=evaluations)


def _config(path: Path) -> Mapping[str, Any]:
    file = path / "config.yaml"
    if not file.is_file():
        missing = "no config.yaml in it" if path.is_dir() else "there is no such directory"
        raise BadInput(missing, where=path, expected="a run directory of rlsys train")
    try:
        config = yaml.safe_load(file.read_bytes())
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise BadInput(f"not readable as YAML ({str(error).splitlines()[0]})", where=file) from error
    stages = config.get("stages") if isinstance(config, dict) else None
    if not isinstance(stages, list) or not all(isinstance(each, dict) and "name" in each for each in stages):
        raise BadInput("no list of stages", where=file, expected="the configuration of a run of rlsys")
    for key, found in ((key, each.get(key)) for key in MAPPINGS for each in (config, *stages)):
        require(isinstance(found or {}, dict), key, found, "keys and values", where=file)
    return dict(config)


def _measurements(
    path: Path, wanted: Callable[[str], bool], starts: Mapping[str, int] | None = None
) -> Iterator[Measurement]:
    """starts: the step before each stage, for lines without their stage's own count of steps."""
    for number, row in enumerate(read_lines(path) if path.exists() else (), start=1):
        stage, step, stage_step = row.get("stage"), row.get("step"), row.get("stage_step")
        if starts is not None and isinstance(stage, str) and type(step) is int:
            stage_step = step - starts.get(visible(stage), step)
        if not isinstance(stage, str) or type(step) is not int or type(stage_step) is not int:
            raise BadInput(f"no row of a run: {step=}, {stage=}, {stage_step=}", where=f"{path} line {number}")
        when = str(row.get("when", ""))
        yield Measurement(
            stage=visible(stage), step=step, stage_step=stage_step, values=finite_numbers(row, wanted), when=when
        )


def finite_numbers(found: Mapping[str, Any], wanted: Callable[[str], bool]) -> dict[str, float]:
    """Those that are finite; a whole number of hundreds of digits is none either."""
    given = {visible(key): own for key, own in found.items() if type(own) in (int, float) and wanted(key)}
    return {key: float(own) for key, own in given.items() if abs(own) <= sys.float_info.max}


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a run, one at a time, without a last one that is not there whole yet: it may still be going on.

    Raises BadInput naming the file, and the line where it is damaged.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield json_object(line, f"{path} line {number}")
                except BadInput:
                    if line.endswith(b"\n"):
                        raise
                    return
    except EOFError:  # the copy of a compressed file that ends in the middle
        return
    except (OSError, zlib.error) as error:
        raise BadInput(f"cannot be read ({getattr(error, 'strerror', None) or error})", where=path) from error


def list_plays(evaluations: Iterable[Measurement]) -> list[str]:
    """`greedy` and `sampled`, or `musique/greedy` ..."""
    keys = (key for each in evaluations for key in each.values if key.endswith("/episodes"))
    return list(dict.fromkeys(key.removesuffix("/episodes") for key in keys))


# -- settings ----------------------------------------------------------------------------------------------------------


def group_runs(runs: Sequence[Run], labels: Sequence[str]) -> tuple[SeedGroup, ...]:
    """Runs by their label, one for each run; without labels by their configuration but the seed. Raises BadInput."""
    paths = [run.path.resolve() for run in runs]
    twice = next((run.path for run, own in zip(runs, paths, strict=True) if paths.count(own) > 1), None)
    if twice is not None:
        raise BadInput("given twice", where=twice, expected="each run once, for it would count as two seeds")
    if labels and len(labels) != len(runs):
        raise BadInput(
            f"{len(labels)} for {len(runs)} runs", key="--labels", expected="one for each (seeds share theirs)"
        )
    groups: dict[str, list[Run]] = {}
    for label, run in zip(labels or _labels(runs), runs, strict=True):
        groups.setdefault(label, []).append(run)
    return tuple(SeedGroup(label=visible(label), runs=tuple(group)) for label, group in groups.items())


def _labels(runs: Sequence[Run]) -> list[str]:
    """What tells settings apart: the recipe's name, else the keys that differ if they are few, else the directory."""
    configs = [{key: value for key, value in run.config.items() if key not in SEED_KEYS} for run in runs]
    first = [configs.index(config) for config in configs]  # the run that each has its setting from
    flats = {at: dict(_flat(configs[at])) for at in first}
    keys = sorted({key for flat in flats.values() for key in flat})
    differing = [key for key in keys if len({repr(flat.get(key)) for flat in flats.values()}) > 1]
    shown = differing if len(differing) <= 2 else []
    choices = (
        {at: str(configs[at].get("name")) for at in flats},
        {at: ", ".join(f"{key}={flat.get(key)}" for key in shown) for at, flat in flats.items()},
        {at: runs[at].path.name for at in flats},
        {at: str(runs[at].path) for at in flats},
    )
    chosen = next(each for each in choices if len(set(each.values())) == len(flats))
    return [chosen[at] for at in first]


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
