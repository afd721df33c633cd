"""Which parts of a stage's reward say that a task was solved: of rewards that are ours. Another's is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from envs.rewards import REWARDS
from rlsys.choices import choose
from rlsys.config.envs import env_of
from rlsys.episode_index import SOLVED_BY
from rlsys.errors import BadInput


class Configured(Protocol):
    """A run with its configuration."""

    def setting(self, key: str, stage: str | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """`solving_parts` of the rewards of a stage."""

    by_env: Mapping[str, Mapping[str, float]]  # "": of the only environment
    by_set: Mapping[str, Mapping[str, float]]  # of `eval.sets`

    def of(self, play: str | None, task_id: str) -> Mapping[str, float]:
        """play: of an evaluation; None in training, where of several environments the task's id names one."""
        if play is not None and env_of(play) in self.by_set:
            return self.by_set[env_of(play)]
        return self.by_env.get(env_of(play or task_id), self.by_env.get("", {}))


def rewards_by_env(run: Configured, stage: str | None) -> Mapping[str, Any]:
    """The section `reward` of each environment of a stage with several, by its name; of another stage under ""."""
    shares = run.setting("envs", stage) if run.setting("env", stage) is None else None
    envs = [env for env in shares if isinstance(env, Mapping)] if isinstance(shares, list) else []
    return {str(env.get("label")): env.get("reward") for env in envs} or {"": run.setting("reward", stage)}


def rewards_by_set(run: Configured, stage: str | None) -> Mapping[str, Any]:
    """The section `reward` of each of `eval.sets`: what it changes, or, with another name, its own alone."""
    sets, by_env = run.setting("eval.sets", stage), rewards_by_env(run, stage)
    by_set = {}
    for name, section in sets.items() if isinstance(sets, Mapping) else ():
        changed = _mapping(section.get("reward") if isinstance(section, Mapping) else None)
        start = _mapping(by_env.get(name, by_env.get("")))
        same = changed.get("name", start.get("name")) == start.get("name")
        by_set[str(name)] = {**start, **changed} if same else changed
    return by_set


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def read_solving(run: Configured, stage: str | None) -> Solving:
    by_env, by_set = rewards_by_env(run, stage), rewards_by_set(run, stage)
    return Solving(
        by_env={name: solving_parts(reward) for name, reward in by_env.items()},
        by_set={name: solving_parts(reward) for name, reward in by_set.items()},
    )


def solving_parts(reward: Any) -> Mapping[str, float]:
    """{part: what it must exceed}. reward: the section of a configuration."""
    name = reward.get("name") if isinstance(reward, Mapping) else None
    if not isinstance(name, str) or name not in REWARDS:
        return SOLVED_BY
    choice = choose("reward", REWARDS, name)
    parts: Mapping[str, float] | None = getattr(choice.build, "solved_by", None)
    if hasattr(choice.schema, "solving"):
        try:
            parts = choice.schema(**reward).solving
        except (TypeError, BadInput):  # what an older version has written
            return {}
    return parts or {}
