"""Which runs are seeds of one setting, and what tells settings apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from rlsys.errors import BadInput
from rlsys.untrusted import visible

SEED_KEYS = ("seed", "tracker", "wandb")  # in which runs of one setting may differ


class Configured(Protocol):
    """A run with its configuration, however its rows were read."""

    @property
    def path(self) -> Path: ...

    @property
    def config(self) -> Mapping[str, Any]: ...


R = TypeVar("R", bound=Configured)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedGroup(Generic[R]):
    """Runs that differ in their seed alone."""

    label: str
    runs: tuple[R, ...]


def group_runs(runs: Sequence[R], labels: Sequence[str] = ()) -> tuple[SeedGroup[R], ...]:
    """Runs by their label, one for each run; without labels by their configuration but the seed. Raises BadInput."""
    paths = [run.path.resolve() for run in runs]
    twice = next((run.path for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1), None)
    if twice is not None:
        raise BadInput("given twice", where=twice, expected="each run once, for it would count as two seeds")
    if labels and len(labels) != len(runs):
        raise BadInput(
            f"{len(labels)} for {len(runs)} runs", key="--labels", expected="one for each (seeds share theirs)"
        )
    groups: dict[str, list[R]] = {}
    for label, run in zip(labels or _labels(runs), runs, strict=True):
        groups.setdefault(label, []).append(run)
    return tuple(SeedGroup(label=visible(label), runs=tuple(group)) for label, group in groups.items())


def _labels(runs: Sequence[Configured]) -> list[str]:
    """What tells settings apart: the recipe's name, else the keys that differ if they are few, else the directory."""
    configs = [{key: value for key, value in run.config.items() if key not in SEED_KEYS} for run in runs]
    first = [configs.index(config) for config in configs]  # the run that each has its setting from
    flats = {at: dict(flatten(configs[at])) for at in first}
    differing = differing_keys(list(flats.values()))
    keys = differing if len(differing) <= 2 else []
    choices = (
        {at: str(configs[at].get("name")) for at in flats},
        {at: ", ".join(f"{key}={flat.get(key)}" for key in keys) for at, flat in flats.items()},
        {at: runs[at].path.name for at in flats},
        {at: str(runs[at].path) for at in flats},
    )
    labels = next(choice for choice in choices if len(set(choice.values())) == len(flats))
    return [labels[at] for at in first]


def differing_keys(flats: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that not all of these flat configurations have the same value of, in alphabetical order."""
    keys = sorted({key for flat in flats for key in flat})
    return [key for key in keys if len({repr(flat.get(key)) for flat in flats}) > 1]


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """learner.lr, stages.rl.steps: a stage is known by its name, an environment of several by its label."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from flatten(child, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value and all(isinstance(entry, dict) and "name" in entry for entry in value):
        for part in value:
            yield from flatten(part, f"{prefix}.{part.get('label') or part['name']}")
    else:
        yield prefix, value
