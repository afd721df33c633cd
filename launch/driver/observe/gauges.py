"""A run's numbers as Ray's own metrics: its Prometheus endpoint and its dashboard have them at no further cost."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from launch.driver.observe.exported import EXPORTED, RUN, Metric
from rlsys.errors import describe_error

log = logging.getLogger("rlsys.tracking")
# Ray refuses an increment of 0. A counter that appeared with its first failure would hide it: `increase` needs a
# sample before it.
ZERO = 1e-9


class Gauges:
    """What EXPORTED lists of each row. A fault boundary: what raises is reported once and ends the export alone."""

    def __init__(self, run: str, start: Mapping[str, Any]) -> None:
        """run: name of the run directory, the label of every metric. start: the row of a run that has not taken a step
        yet; the counters begin here too."""
        self._run = run
        self._made: dict[str, Any] = {}  # by name: Ray's objects
        self._seen: dict[str, list[str]] = {}  # by name: the label's values so far
        self._totals: dict[tuple[str, str], float] = {}  # of cumulative counters, at the last row
        self._broken = False
        begins = {key: 0 for metric in EXPORTED if metric.kind == "counter" for key in metric.keys.values()}
        self.set(begins | dict(start))

    def set(self, row: Mapping[str, Any]) -> None:
        """One row of metrics.jsonl, with what EXPORTED reads besides."""
        staged = {f"reward/mean in {row.get('stage')}": row["reward/mean"]} if "reward/mean" in row else {}
        try:
            for metric in () if self._broken else EXPORTED:
                for value, number in metric.read({**row, **staged}):
                    self._take(metric, value, number)
        except Exception as error:
            self._broken = True
            log.warning("Ray takes no metrics: %s", describe_error(error))

    def set_held_out(self, name: str, values: Mapping[str, float | None]) -> None:
        """An evaluation: its accuracy, else its mean reward."""
        measure = values.get("accuracy", values.get("mean_reward"))
        self.set({} if measure is None else {f"held_out/{name}": measure})

    def _take(self, metric: Metric, value: str, number: float) -> None:
        label_values = self._seen.setdefault(metric.name, [])
        first = value not in label_values
        if first and len(label_values) >= metric.series:
            return
        if first:
            label_values.append(value)
        labels = {RUN: self._run} | ({metric.label: value} if metric.label is not None else {})
        instrument = self._get(metric)
        if metric.kind == "gauge":
            instrument.set(number, labels)
        elif (grown := self._advance(metric, value, number)) > 0 or first:
            instrument.inc(max(grown, ZERO), labels)

    def _advance(self, metric: Metric, value: str, number: float) -> float:
        if metric.counts:
            return float(number > 0)
        if not metric.cumulative:
            return number
        last = self._totals.get((metric.name, value), 0.0)
        self._totals[metric.name, value] = number
        return number - last  # below 0 where a process began again: nothing is counted of that row

    def _get(self, metric: Metric) -> Any:
        if metric.name not in self._made:
            from ray.util.metrics import Counter, Gauge  # Ray: only in a run

            kind = Gauge if metric.kind == "gauge" else Counter
            labels = (RUN,) if metric.label is None else (RUN, metric.label)
            self._made[metric.name] = kind(f"rlsys_{metric.name}", description=metric.about, tag_keys=labels)
        return self._made[metric.name]
