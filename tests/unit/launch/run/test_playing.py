"""How many episodes are played at once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from launch.run.playing import PendingGroup, play_each
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
