"""Tasks played, so many episodes at once: on the engines, or by a model at an address."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from launch.checks.deadlines import attempt_s
from rlsys.config.identity import config_key
from rlsys.config.recipe import RecipeConfig
from rlsys.rollout import RolloutPlan
from rlsys.types import Group, Task, Ticket


class Plays(Protocol):
    """The rollout workers' pool, or a model at an address."""

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group: ...


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """A group that is to be played: of the play of this name the task of this number."""

    play: str
    sequence: int
    task: Task
    plan: RolloutPlan


def rollout_plan(
    recipe: RecipeConfig,
    purpose: str,
    *,
    group_size: int,
    temperature: float,
    turn_tokens: int | None = None,
    response_tokens: int | None = None,
) -> RolloutPlan:
    """How the episodes of a stage or an evaluation are played, in the recipe's one environment. The tokens are limits
    of an evaluation's own."""
    return RolloutPlan(
        purpose=purpose,
        env=recipe.env,
        reward=recipe.reward,
        group_size=group_size,
        temperature=temperature,
        top_p=recipe.rollout.top_p if temperature else 1.0,
        max_turn_tokens=turn_tokens or recipe.rollout.max_turn_tokens,
        max_context=recipe.engine.max_model_len,
        timeout_s=attempt_s(recipe, turn_tokens, response_tokens).value,
        max_response_tokens=response_tokens or recipe.rollout.max_response_tokens,
        infra_retries=recipe.rollout.infra_retries,
        data_retries=recipe.rollout.data_retries,
    )


def plans_by_env(recipe: RecipeConfig, purpose: str, *, group_size: int, temperature: float) -> dict[str, RolloutPlan]:
    """The same for each environment of a stage, by its name; for the only one of a stage under ""."""
    envs = recipe.by_env
    worlds = tuple(config_key(view.env) for view in envs.values()) if recipe.envs else ()
    plans = {
        name: rollout_plan(view, purpose, group_size=group_size, temperature=temperature) for name, view in envs.items()
    }
    return {name: replace(plan, together=worlds) for name, plan in plans.items()}


async def play_each(
    pool: Plays,
    owed: Iterable[PendingGroup],
    concurrency: int,
    finished: Callable[[PendingGroup, Group], Awaitable[None] | None],
    more: Callable[[], bool] = lambda: True,
) -> None:
    """Play these groups in order and hand each to `finished` as it ends; what `finished` raises ends them all.

    concurrency: episodes at once, though one group at least. more: asked before each group; once it says no, no further
    one begins.
    """
    waiting = deque(owed)
    playing: dict[asyncio.Future[Group], PendingGroup] = {}
    room = concurrency
    try:
        while waiting or playing:
            while waiting and (not playing or waiting[0].plan.group_size <= room) and more():
                request = waiting.popleft()
                ticket = Ticket(sequence=request.sequence, epoch=0, task=request.task, attempt=0, start_version=0)
                playing[asyncio.ensure_future(pool.group(ticket, request.plan, on_retry=lambda _: None))] = request
                room -= request.plan.group_size
            if not playing:
                return
            done, _ = await asyncio.wait(playing, return_when=asyncio.FIRST_COMPLETED)
            for group in done:
                request = playing.pop(group)
                room += request.plan.group_size
                writing = finished(request, group.result())
                if writing is not None:
                    await writing
    finally:
        for group in playing:
            group.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
