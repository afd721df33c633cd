"""How many episodes are played at once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from launch.driver.run.playing import PendingGroup, play_each, rollout_plan
from rlsys.config.engine import EngineConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.config.rollout import RolloutConfig
from rlsys.rollout import RolloutPlan
from rlsys.types import Group, Task, Ticket

PLAN = RolloutPlan(
    purpose="eval",
    env=None,
    reward=None,
    group_size=1,
    temperature=0.0,
    top_p=1.0,
    max_turn_tokens=1,
    max_context=8,
    timeout_s=1.0,
)


class Crowd:
    """Counts the episodes under way. Each group lasts for some turns of the loop."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Any:
        self.now += plan.group_size
        self.most = max(self.most, self.now)
        for _ in range(3):
            await asyncio.sleep(0)
        self.now -= plan.group_size


@pytest.mark.parametrize(
    ("size", "concurrency", "most"), [(8, 64, 64), (8, 16, 16), (8, 20, 16), (16, 16, 16), (16, 8, 16), (1, 3, 3)]
)
def test_all_places_are_taken_and_no_more(size: int, concurrency: int, most: int) -> None:
    crowd, finished = Crowd(), []

    def end(each: PendingGroup, group: Group) -> None:
        finished.append(each.sequence)

    plan = replace(PLAN, group_size=size)
    owed = [PendingGroup("greedy", n, Task(task_id=str(n), question="q"), plan) for n in range(20)]
    asyncio.run(play_each(crowd, owed, concurrency, end))
    assert crowd.most == most and sorted(finished) == list(range(20))


def owed(count: int) -> list[PendingGroup]:
    return [PendingGroup("greedy", n, Task(task_id=str(n), question="q"), PLAN) for n in range(count)]


def test_groups_begin_in_order_until_no_more_are_wanted_and_those_under_way_end() -> None:
    began: list[Ticket] = []
    finished: list[int] = []

    class Pool:
        async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Any:
            began.append(ticket)
            await asyncio.sleep(0)
            return f"group {ticket.sequence}"

    def end(each: PendingGroup, group: Group) -> None:
        assert str(group) == f"group {each.sequence}"
        finished.append(each.sequence)

    answers = iter([True] * 5 + [False] * 9)
    asyncio.run(play_each(Pool(), owed(9), 2, end, lambda: next(answers)))
    assert [ticket.sequence for ticket in began] == sorted(finished) == [0, 1, 2, 3, 4]
    assert {(ticket.epoch, ticket.attempt, ticket.start_version) for ticket in began} == {(0, 0, 0)}
    began.clear()
    asyncio.run(play_each(Pool(), owed(3), 2, end, lambda: False))
    assert not began


def test_what_fails_ends_the_groups_beside_it() -> None:
    ended: list[int] = []

    class Pool:
        async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Any:
            try:
                await asyncio.sleep(0 if ticket.sequence == 1 else 60)
            finally:
                ended.append(ticket.sequence)

    def end(each: PendingGroup, group: Group) -> None:
        raise ValueError("a full disk")

    async def scenario() -> None:
        with pytest.raises(ValueError, match="a full disk"):
            await play_each(Pool(), owed(3), 3, end)
        assert sorted(ended) == [0, 1, 2]  # none goes on beside what comes next

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_plan_is_what_the_recipe_says_and_greedy_play_takes_the_likeliest_token() -> None:
    recipe = RecipeConfig(
        engine=EngineConfig(max_model_len=640),
        rollout=RolloutConfig(
            top_p=0.9,
            max_turn_tokens=77,
            episode_timeout_s=33.0,
            max_response_tokens=99,
            infra_retries=4,
            data_retries=5,
        ),
    )
    plan = rollout_plan(recipe, "eval", group_size=3, temperature=0.5)
    assert (plan.purpose, plan.group_size, plan.temperature, plan.top_p) == ("eval", 3, 0.5, 0.9)
    assert (plan.max_turn_tokens, plan.max_context, plan.max_response_tokens) == (77, 640, 99)
    assert (plan.timeout_s, plan.infra_retries, plan.data_retries) == (33.0, 4, 5)
    assert rollout_plan(recipe, "eval", group_size=1, temperature=0.0).top_p == 1.0
