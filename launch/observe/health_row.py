"""What of a row of metrics.jsonl tells whether a stage is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What of a row of metrics.jsonl is looked at here. None, or 0 for shares and counts: the row has it not."""

    step: int
    entropy: float | None = None
    reward: float | None = None  # mean
    reward_min: float | None = None
    reward_max: float | None = None
    turns: float = 0.0  # messages of the model, mean
    longest: float = 0.0  # tokens of an episode
    cut: float = 0.0  # share of the episodes
    trained: float | None = None  # tokens
    stale: float = 0.0  # tokens
    optimizer_steps: float = 0.0
    malformed: float = 0.0  # share of the episodes
    raised: float = 0.0  # share of the episodes
    kl: float | None = None  # from the reference, nats a token
    grad_norm: float | None = None  # before clipping
    with_signal: float = 0.0  # groups that were trained
    filtered: float = 0.0  # groups
    failed: float = 0.0  # groups
    busy: float | None = None  # seconds of all engines, cumulative
    alive: float | None = None  # seconds of all engines, cumulative
    learner_idle: float | None = None  # share of the step
    parts: Mapping[str, float] = field(default_factory=dict)  # of the reward, means


KEYS = {
    "step": "step",
    "entropy": "entropy/mean",
    "reward": "reward/mean",
    "reward_min": "reward/min",
    "reward_max": "reward/max",
    "turns": "episode/turns",
    "longest": "episode/tokens_max",
    "cut": "episode/token_limit",
    "trained": "tokens/trained",
    "stale": "tokens/stale",
    "optimizer_steps": "learner/steps",
    "malformed": "episode/malformed",
    "raised": "episode/raised",
    "kl": "kl/reference",
    "grad_norm": "learner/grad_norm",
    "with_signal": "groups/trained",
    "filtered": "groups/filtered",
    "failed": "groups/failed",
    "busy": "engine/busy_s",
    "alive": "engine/alive_s",
    "learner_idle": "learner/idle_share",
}
PART = "reward/part/"


def read(metrics: Mapping[str, Any]) -> Row:
    parts = {key.removeprefix(PART): mean for key, mean in metrics.items() if key.startswith(PART)}
    return Row(parts=parts, **{name: metrics[key] for name, key in KEYS.items() if metrics.get(key) is not None})
