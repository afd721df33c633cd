"""Which parts of a stage's reward say that a task was solved: of rewards that are ours. Another's is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.rewards import REWARDS
from rlsys.choices import choose
from rlsys.episode_index import SOLVED_BY
from rlsys.errors import BadInput


def solving_parts(reward: Any) -> Mapping[str, float]:
    """{part: what it must exceed}. reward: the section of a configuration."""
    name = reward.get("name") if isinstance(reward, Mapping) else None
    if not isinstance(name, str) or name not in REWARDS:
        return SOLVED_BY
    picked = choose("reward", REWARDS, name)
    found: Mapping[str, float] | None = getattr(picked.build, "solved_by", None)
    if hasattr(picked.schema, "solving"):
        try:
            found = picked.schema(**reward).solving
        except (TypeError, BadInput):  # what an older version has written
            return {}
    return found or {}
