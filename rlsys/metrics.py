"""Metrics that state their own reduction.

A metric is a small value that knows how to merge with another of its kind, so that no code has to guess
from its name whether to average or to add it: over micro-batches, ranks or trajectories alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mean:
    """A weighted mean: `Mean(6.0, 4)` is 1.5. `Mean(nan, 0)` never happens: no weight, no metric."""

    total: float
    weight: float = 1.0

    @property
    def value(self) -> float:
        return self.total / self.weight

    def merge(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.weight + other.weight)


@dataclass(frozen=True, slots=True)
class Sum:
    value: float

    def merge(self, other: Sum) -> Sum:
        return Sum(self.value + other.value)


@dataclass(frozen=True, slots=True)
class Max:
    value: float

    def merge(self, other: Max) -> Max:
        return Max(_unless_nan(max, self.value, other.value))


@dataclass(frozen=True, slots=True)
class Min:
    value: float

    def merge(self, other: Min) -> Min:
        return Min(_unless_nan(min, self.value, other.value))


Metric = Mean | Sum | Max | Min
Metrics = Mapping[str, Metric]


def merge(parts: Iterable[Metrics]) -> dict[str, Metric]:
    """One mapping out of many; a metric may be missing from some. Raises TypeError when kinds differ."""
    merged: dict[str, Metric] = {}
    for part in parts:
        for name, metric in part.items():
            if isinstance(metric, Mean) and metric.weight == 0:
                continue
            previous = merged.get(name)
            if previous is not None and type(previous) is not type(metric):
                raise TypeError(f"metric {name!r} is a {type(previous).__name__} and a {type(metric).__name__}")
            merged[name] = metric if previous is None else previous.merge(metric)  # type: ignore[arg-type]
    return merged


def finite(metrics: Metrics) -> dict[str, Metric]:
    """The metrics that are finite numbers: strict JSON readers refuse the others.

    Call it after merging. A `nan` dropped before would leave the mean of the other parts, which looks like the whole.
    """
    return {
        name: metric
        for name, metric in metrics.items()
        if math.isfinite(metric.total if isinstance(metric, Mean) else metric.value)
    }


def values(metrics: Metrics) -> dict[str, float]:
    """Plain numbers for a row of `metrics.jsonl`."""
    return {
        name: metric.value for name, metric in metrics.items() if not (isinstance(metric, Mean) and not metric.weight)
    }


def _unless_nan(pick: Callable[[float, float], float], left: float, right: float) -> float:
    """`max(1, nan)` is 1 and `max(nan, 1)` is nan: here both are nan, as with sums and means."""
    return math.nan if math.isnan(left) or math.isnan(right) else pick(left, right)
