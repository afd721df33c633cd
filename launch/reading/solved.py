"""Which parts of a stage's reward say that a task was solved: of rewards that are ours. Another's is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from envs.rewards import REWARDS
from rlsys.choices import choose
from rlsys.episode_index import SOLVED_BY
from rlsys.errors import BadInput


class Configured(Protocol):
    """A run with its configuration."""

    def setting(self, key: str, stage: str | None = None) -> Any: ...


def rewards_by_env(run: Configured, stage: str | None) -> Mapping[str, Any]:
    """The section `reward` of each environment of a stage with several, by its name; of another stage under ""."""
    shares = run.setting("envs", stage) if run.setting("env", stage) is None else None
    named = [each for each in shares if isinstance(each, Mapping)] if isinstance(shares, list) else []
    return {str(each.get("label")): each.get("reward") for each in named} or {"": run.setting("reward", stage)}


def solving_by_env(run: Configured, stage: str | None) -> Mapping[str, Mapping[str, float]]:
    """`solving_parts` of each."""
    return {name: solving_parts(reward) for name, reward in rewards_by_env(run, stage).items()}


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
