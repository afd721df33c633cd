"""The mixture of several environments or data sets by weight (elsewhere `interleave_datasets`).

Which environment a group is of is decided here, which of its tasks by its own curriculum. Turns are dealt out by weight
and nothing is left to chance: after any number of draws no environment is ahead of its share by a whole turn. They
follow from the weights alone, so that a resumed run computes them again, and a sequence number always means the same
environment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlsys.config.envs import EnvShare, by_name
from rlsys.curriculum import Curriculum, DrawnTask


class Turns:
    """Turns({"sums": 1, "calculator": 2}).of(0) is ("calculator", 0): number 0 is its first."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """The order in which a recipe lists them changes nothing."""
        total = math.fsum(weights.values())  # the same in any order
        self._shares = {name: weights[name] / total for name in sorted(weights)}
        self._credit = dict.fromkeys(self._shares, 0.0)
        self._count = dict.fromkeys(self._shares, 0)
        self._dealt: list[tuple[str, int]] = []

    def of(self, sequence: int) -> tuple[str, int]:
        """The environment of a sequence number, and how many earlier ones it has."""
        while len(self._dealt) <= sequence:
            for name, share in self._shares.items():
                self._credit[name] += share
            env_name = max(self._credit, key=lambda name: self._credit[name])  # of equals the first
            self._credit[env_name] -= 1
            self._dealt.append((env_name, self._count[env_name]))
            self._count[env_name] += 1
        return self._dealt[sequence]


class MixedCurriculum:
    """A `Curriculum` of several, by environment. Each counts its own draws."""

    def __init__(self, parts: Mapping[str, Curriculum], weights: Mapping[str, float]) -> None:
        self._parts = parts
        self._turns = Turns(weights)

    def draw(self, sequence: int) -> DrawnTask:
        name, env_sequence = self._turns.of(sequence)
        return self._parts[name].draw(env_sequence)

    def record_group(self, sequence: int, signal: bool | None, reward: float | None) -> None:
        name, env_sequence = self._turns.of(sequence)
        self._parts[name].record_group(env_sequence, signal, reward)

    def row(self) -> dict[str, float]:
        return {by_name(name, key): value for name, part in self._parts.items() for key, value in part.row().items()}

    def state(self) -> dict[str, Any]:
        return {name: part.state() for name, part in self._parts.items()}


def weights_of(envs: Mapping[str, EnvShare]) -> dict[str, float]:
    return {name: share.weight for name, share in envs.items()}
