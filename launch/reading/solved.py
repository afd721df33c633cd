"""Which parts of a stage's reward say that a task was solved: of rewards that are ours. Another's is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.rewards import REWARDS
from rlsys.choices import choose
from rlsys.episode_index import SOLVED_BY


def solving_parts(reward: Any) -> Mapping[str, float]:
    """{part: what it must exceed}. reward: the section of a configuration."""
    name = reward.get("name") if isinstance(reward, Mapping) else None
    if not isinstance(name, str) or name not in REWARDS:
        return SOLVED_BY
    found: Mapping[str, float] | None = getattr(choose("reward", REWARDS, name).build, "solved_by", None)
    return found or {}
