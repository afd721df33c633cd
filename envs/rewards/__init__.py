"""Rewards: pure functions of a transcript, chosen by a recipe's `reward.name`."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from envs.rewards.answer import AnswerReward, AnswerRewardConfig
from rlsys.errors import BadInput
from rlsys.types import Reward, Transcript

RewardFunction = Callable[[Transcript], Reward]

REWARDS: dict[str, tuple[type[Any], Callable[[Any], RewardFunction]]] = {
    "answer": (AnswerRewardConfig, AnswerReward),
}


def make_reward(config: Any) -> RewardFunction:
    """The reward that `config.name` picks, built from `config`. Raises BadInput for a name that is not in REWARDS."""
    if config.name not in REWARDS:
        nearest = get_close_matches(str(config.name), REWARDS, n=1, cutoff=0.0)[0]
        raise BadInput(f"reward.name={config.name!r}: expected one of {', '.join(REWARDS)}; nearest is {nearest}")
    return REWARDS[config.name][1](config)
