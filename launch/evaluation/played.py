"""One play of an evaluation as its JSON has it: what is compared with another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput
from rlsys.jsonl import json_object
from rlsys.stats import proportions_z_test

POOLED = "_pooled"  # a share over all that a set holds, such as the constraints of ProScript


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Number(value=0.592, count=6968): of how many it is a share or a mean."""

    value: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    measure: str  # accuracy or mean reward
    numbers: Mapping[str, Number]  # by metric
    tasks: Mapping[str, float]  # the measure, by task
    group: str = ""  # eval.sets.NAME.group

    @property
    def key(self) -> str:
        """Of `numbers`: the one that stands for the set. A pooled share, where it has one: so the papers count."""
        pooled = next((name for name in self.numbers if name.endswith(POOLED)), None)
        return pooled or ("accuracy" if self.measure == "accuracy" else "mean_reward")

    @property
    def number(self) -> Number | None:
        return self.numbers.get(self.key)

    @property
    def is_share(self) -> bool:
        return self.key != "mean_reward"


def differ(ours: Number, theirs: Number) -> tuple[float, float]:
    """(z, p) of the test of two proportions."""
    return proportions_z_test(ours.value * ours.count, ours.count, theirs.value * theirs.count, theirs.count)


def read_played(path: str, said: str) -> dict[str, Played]:
    """What `rlsys eval --output` has written, by play. said: how an error line begins. Raises BadInput."""
    try:
        found = json_object(Path(path).read_bytes(), path)
    except OSError as error:
        raise BadInput(f"{said}: cannot be read ({error.strerror})") from error
    if not isinstance(found.get("plays"), dict):
        raise BadInput(f'{said}: no "plays": expected what rlsys eval --output has written')
    return {name: _played(found, name) for name in found["plays"]}


def _played(found: Mapping[str, Any], name: str) -> Played:
    play = found["plays"][name]
    graded = found["episodes"][name] - found["failures"][name]
    numbers = {
        key: Number(value=float(metric["value"]), count=float(metric.get("count", graded)))
        for key, metric in play["metrics"].items()
    }
    measure, group = str(play.get("measure", "accuracy")), str(play.get("group", ""))
    return Played(measure=measure, numbers=numbers, tasks=dict(play["tasks"]), group=group)
