"""Whether a model is a mixture of experts, by its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def has_experts(config: Mapping[str, Any]) -> bool:
    """config: of config.json, or of its text half. One expert alone is none: every token goes through it."""
    return any(isinstance(config.get(key), int) and config[key] > 1 for key in COUNTS)
