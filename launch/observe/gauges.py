"""A few numbers of each row as Ray's own metrics: its Prometheus endpoint and dashboard have them for nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("rlsys.tracking")
GAUGES = {  # a key of the row: (the gauge, what it says)
    "reward/mean": ("rlsys_reward_mean", "Mean reward of the step's graded trajectories."),
    "lag/max": ("rlsys_lag_max", "Versions between the oldest token of the step and the weights that it trains."),
    "tokens/generated_per_s": ("rlsys_tokens_generated_per_second", "Tokens sampled per second, over all engines."),
    "tokens/trained_per_s": ("rlsys_tokens_trained_per_second", "Tokens in the loss per second."),
}


class Gauges:
    """A few numbers of each row as Ray's own metrics: its Prometheus endpoint and dashboard have them for nothing.

    A fault boundary, as the tracker is. Each gauge is made with the first row that has its number.
    """

    def __init__(self, run: str) -> None:
        self._tags = {"run": run}
        self._gauges: dict[str, Any] = {}
        self._broken = False

    def set(self, row: Mapping[str, Any]) -> None:
        try:
            for key in GAUGES.keys() & row.keys():
                if not self._broken:
                    self._get_gauge(key).set(row[key], {**self._tags, "stage": str(row.get("stage", ""))})
        except Exception as error:
            self._broken = True
            log.warning("Ray takes no metrics: %s", error)

    def _get_gauge(self, key: str) -> Any:
        if key not in self._gauges:
            from ray.util.metrics import Gauge

            name, text = GAUGES[key]
            self._gauges[key] = Gauge(name, description=text, tag_keys=("run", "stage"))
        return self._gauges[key]
