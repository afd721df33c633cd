"""The share of right answers of a training step: one rule for every reward that says what is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envs.rewards.functions import FunctionsRewardConfig
from launch.driver.observe.columns import lay_out
from launch.driver.stages.solved_metrics import solved_metrics
from rlsys.metrics import values
from rlsys.summaries import GroupRef, refer_to
from rlsys.types import Failure, FailureKind, Reward, Task
from tests.makers.made import group, ticket, trajectory, turn

FUNCTIONS = {"my_rewards.right": 2.0, "my_rewards.brief": 0.2}
SAYS = FunctionsRewardConfig(functions=FUNCTIONS, solved_by={"right": 0.5})
SILENT = FunctionsRewardConfig(functions=FUNCTIONS)
GONE = Failure(kind=FailureKind.INFRA, where="rollout:0", detail="gone")


def played(sequence: int, *rewards: dict[str, float] | None, env: str = "") -> GroupRef:
    """A group whose episodes have these parts; None failed."""
    outcomes = [GONE if parts is None else Reward(value=sum(parts.values()), parts=parts) for parts in rewards]
    episodes = (trajectory(turn((1,), (7,)), sibling=sibling, reward=reward) for sibling, reward in enumerate(outcomes))
    task = Task(task_id=f"{env}/{sequence}" if env else f"a/{sequence}", question="?")
    return refer_to(group(ticket(sequence, task=task), *episodes))


def right(value: float) -> dict[str, float]:
    """Parts as the reward gives them, after their weights."""
    return {"right": 2.0 * value, "brief": -0.02}


# Above 0.5 are 1.0 and 0.6 of the four that were graded: 0.5 is not, and a failed episode is in no mean.
GROUPS = [played(0, right(1.0), right(0.5), None), played(1, right(0.6), right(0.0))]


def test_functions_that_say_what_is_solved_give_the_share_that_solved() -> None:
    assert values(solved_metrics(GROUPS, {"": SAYS})) == {"reward/solved": 0.5}
    assert solved_metrics(GROUPS, {"": SILENT}) == solved_metrics([], {"": SAYS}) == {}


def test_a_part_counts_as_solved_whatever_it_pays() -> None:
    answers = [played(0, *({"correct": paid, "format": 0.1} for paid in (0.8, 0.0, 0.0)))]
    config: Any = SimpleNamespace(name="answer")
    assert values(solved_metrics(answers, {"": config})) == {"reward/solved": pytest.approx(1 / 3)}


def test_several_environments_have_one_each_and_one_together_where_all_say() -> None:
    groups = [played(0, right(1.0), right(1.0), right(0.0), env="sums"), played(1, right(0.0), env="words")]
    row = values(solved_metrics(groups, {"sums": SAYS, "words": SAYS}))
    names = ("by_env/sums/reward/solved", "by_env/words/reward/solved", "reward/solved")
    assert [row[name] for name in names] == [pytest.approx(2 / 3), 0.0, 0.5]
    assert values(solved_metrics(groups, {"sums": SAYS, "words": SILENT})) == {names[0]: pytest.approx(2 / 3)}


def test_the_terminal_shows_it() -> None:
    row = values(solved_metrics(GROUPS, {"": SAYS}))
    layout = lay_out("rl", 30, sorted(row), 80)
    assert [column.title for column in layout.columns] == ["correct"]
    assert layout.line(3, row, "1:00").split() == ["rl", "3/30", "0.500", "1:00"]
