"""The reward that an agent returns."""

from typing import Any

import pytest

from envs.rewards.agent import AgentReward, AgentRewardConfig
from rlsys.errors import BadInput
from rlsys.types import Task, Transcript

REWARD = AgentReward(AgentRewardConfig())


def value(state: dict[str, Any] | None) -> float:
    return REWARD(Transcript(task=Task(task_id="t", question="q"), messages=(), state=state)).value


def test_a_number_an_object_or_nothing() -> None:
    assert [value({"exit": 0, "returned": returned}) for returned in (0.5, True, {"reward": -1})] == [0.5, 1.0, -1.0]
    assert [value(state) for state in (None, {"exit": 1}, {"exit": None}, {"exit": 3, "returned": 17})] == [0.0] * 4


@pytest.mark.parametrize("returned", [None, "0.5", [1], {"score": 1}, float("nan")])
def test_what_is_no_reward_is_no_zero(returned: Any) -> None:
    with pytest.raises(BadInput, match="is no reward"):
        value({"exit": 0, "returned": returned})
