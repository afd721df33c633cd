"""A run directory as curves need it: what was configured, and rows of numbers by step. Damage is an error.

The configuration is read as plain YAML: a run of another user may name modules, and a picture must not import them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from launch.run_dir.lines import finite_numbers, read_lines
from launch.run_dir.names import EVALUATIONS, METRICS
from rlsys.config.mappings import as_plain, nest
from rlsys.errors import BadInput, require
from rlsys.untrusted import visible

MAPPINGS = ("about", "eval", "reward")  # keys that are looked into
DEEPEST = 50  # levels of a configuration


class _PlainLoader(yaml.SafeLoader):
    """Of a tree of bounded depth. A run writes no aliases; nested ones are gigabytes of text in a few lines."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias, which no run writes")
        if self._depth >= DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


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


def read_run(path: Path, keep: Callable[[str], bool]) -> Run:
    """keep: whether a key of metrics.jsonl is kept. Raises BadInput for what is no run directory, or has no numbers."""
    config = read_config(path)
    rows = tuple(_measurements(path / METRICS, keep))
    starts = {row.stage: row.step - row.stage_step for row in reversed(rows)}
    evaluations = tuple(_measurements(path / EVALUATIONS, lambda key: "/" in key, starts))
    if not rows and not evaluations:
        raise BadInput("no step and no evaluation in it yet", where=path)
    return Run(path=path, config=config, rows=rows, evaluations=evaluations)


def read_config(path: Path) -> Mapping[str, Any]:
    """Of config.yaml, as plain values. Raises BadInput for what is no run directory."""
    file = path / "config.yaml"
    if not file.is_file():
        missing = "no config.yaml in it" if path.is_dir() else "there is no such directory"
        raise BadInput(missing, where=path, expected="a run directory of rlsys train")
    try:
        config = yaml.load(file.read_bytes(), _PlainLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: no UTF-8, no such day
        raise BadInput(f"not readable as YAML ({str(error).partition(chr(10))[0]})", where=file) from error
    stages = config.get("stages") if isinstance(config, dict) else None
    if not isinstance(stages, list) or not all(isinstance(stage, dict) and "name" in stage for stage in stages):
        raise BadInput("no list of stages", where=file, expected="the configuration of a run of rlsys")
    try:
        # A mapping that a stage has as a whole has a dotted key.
        stages = [as_plain(nest(stage.items())[0]) for stage in stages]
    except BadInput as error:
        raise BadInput(error, where=file) from error
    for key, section in ((key, mapping.get(key)) for key in MAPPINGS for mapping in (config, *stages)):
        require(isinstance(section or {}, dict), key, section, "keys and values", where=file)
    return {**config, "stages": stages}


def _measurements(
    path: Path, keep: Callable[[str], bool], starts: Mapping[str, int] | None = None
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
            stage=visible(stage), step=step, stage_step=stage_step, values=finite_numbers(row, keep), when=when
        )


def list_plays(evaluations: Iterable[Measurement]) -> list[str]:
    """`greedy` and `sampled`, or `musique/greedy` ..."""
    keys = (key for evaluation in evaluations for key in evaluation.values if key.endswith("/episodes"))
    return list(dict.fromkeys(key.removesuffix("/episodes") for key in keys))
