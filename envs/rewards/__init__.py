"""Rewards: pure functions of a transcript, chosen by a recipe's `reward.name`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envs.rewards.answer import AnswerReward, AnswerRewardConfig
from rlsys.config import construct
from rlsys.types import Reward, Transcript

RewardFunction = Callable[[Transcript], Reward]

REWARDS: dict[str, tuple[type[Any], Callable[[Any], RewardFunction]]] = {
    "answer": (AnswerRewardConfig, AnswerReward),
}


def make_reward(config: Any) -> RewardFunction:
    """The reward that `config.name` picks, built from `config`. Raises BadInput for a name that is not in REWARDS."""
    reward: RewardFunction = construct("reward", REWARDS, config)
    return reward
