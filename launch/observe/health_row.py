"""What of a row of metrics.jsonl tells whether a stage is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

PART = "reward/part/"


def _of(key: str) -> Any:
    """A number that a row may lack: then it is None."""
    return field(default=None, metadata={"key": key})


def _share(key: str) -> Any:
    """A share or a count: 0 where the row has none."""
    return field(default=0.0, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRow:
    step: int = field(metadata={"key": "step"})
    entropy: float | None = _of("entropy/mean")
    reward: float | None = _of("reward/mean")
    reward_min: float | None = _of("reward/min")
    reward_max: float | None = _of("reward/max")
    turns: float = _share("episode/turns")  # messages of the model, mean
    longest: float = _share("episode/tokens_max")
    cut: float = _share("episode/token_limit")  # share of the episodes
    trained: float | None = _of("tokens/trained")
    stale: float = _share("tokens/stale")
    optimizer_steps: float = _share("learner/steps")
    malformed: float = _share("episode/malformed")  # share of the episodes
    raised: float = _share("episode/raised")  # share of the episodes
    kl: float | None = _of("kl/reference")  # nats a token
    grad_norm: float | None = _of("learner/grad_norm")  # before clipping
    with_signal: float = _share("groups/trained")
    filtered: float = _share("groups/filtered")
    failed: float = _share("groups/failed")
    busy: float | None = _of("engine/busy_s")  # of all engines, cumulative
    alive: float | None = _of("engine/alive_s")  # of all engines, cumulative
    learner_idle: float | None = _of("learner/idle_share")  # of the step
    parts: Mapping[str, float] = field(default_factory=dict)  # of the reward, means


def read(metrics: Mapping[str, Any]) -> HealthRow:
    parts = {key.removeprefix(PART): mean for key, mean in metrics.items() if key.startswith(PART)}
    keys = {each.name: each.metadata["key"] for each in fields(HealthRow) if each.metadata}
    return HealthRow(parts=parts, **{name: metrics[key] for name, key in keys.items() if metrics.get(key) is not None})
