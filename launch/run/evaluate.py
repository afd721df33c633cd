"""Held-out accuracy: greedy, and sampled at the configured temperature, on the engines that training uses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envs.rewards import solved
from launch.run import wire
from rlsys.config import RecipeConfig
from rlsys.rollout import RolloutPlan
from rlsys.types import Failure, Group, Task, Ticket

if TYPE_CHECKING:
    from actors.pool import RolloutPool
    from actors.services import Services
    from launch.run.run import Run


async def evaluate(run: Run, recipe: RecipeConfig, when: str) -> dict[str, float]:
    """{"greedy": accuracy, "sampled": accuracy} on the held-out tasks; the episodes are kept in trajectories/."""
    tasks = run.world.tasks("held_out")[: recipe.eval.tasks]
    run.progress.begin(f"evaluating {when}: {len(tasks)} held-out tasks, greedy and {recipe.eval.samples} sampled")
    results: dict[str, float] = {}  # nan where nothing was graded
    for name, plan in plans(recipe, run.services).items():
        run.progress.doing(f"evaluating {when}, {name}: tasks played")
        groups = await rollout_tasks(run.pool, tasks, plan, recipe.eval.concurrency, run.progress.count)
        scored = score(groups, recipe.reward)
        results[name] = float("nan") if scored.accuracy is None else scored.accuracy
        run.tracker.evaluated(run.state.step, name, {"accuracy": scored.accuracy, "reward": scored.reward})
        run.dir.save_trajectories(f"eval-{when}-{name}", groups, {})
    run.progress.say(
        f"held-out accuracy {when}: " + ", ".join(f"{name} {value:.3f}" for name, value in results.items())
    )
    return {name: round(value, 4) for name, value in results.items() if value == value}


def plans(recipe: RecipeConfig, services: Services) -> dict[str, RolloutPlan]:
    drawn = {"greedy": (1, 0.0), "sampled": (recipe.eval.samples, recipe.eval.temperature)}
    return {
        name: wire.rollout_plan(recipe, f"eval-{name}", group_size=size, temperature=temperature, services=services)
        for name, (size, temperature) in drawn.items()
    }


async def rollout_tasks(
    pool: RolloutPool, tasks: Sequence[Task], plan: RolloutPlan, concurrency: int, count: Callable[[int, int], None]
) -> list[Group]:
    """One group per task, in the order of the tasks, `concurrency` episodes at once; `count(done, all)` is told."""
    groups: dict[int, Group] = {}

    def keep(group: Group) -> None:
        groups[group.ticket.sequence] = group
        count(len(groups), len(tasks))

    await rollout_each(pool, list(enumerate(tasks)), plan, concurrency, keep)
    return [groups[sequence] for sequence in range(len(tasks))]


async def rollout_each(
    pool: RolloutPool,
    tasks: Sequence[tuple[int, Task]],
    plan: RolloutPlan,
    concurrency: int,
    finished: Callable[[Group], None],
) -> None:
    """One group per (sequence, task), handed over as it ends; what `finished` raises ends them all."""
    waiting = iter(tasks)

    async def one_after_another() -> None:
        for sequence, task in waiting:
            ticket = Ticket(sequence=sequence, epoch=0, task=task, attempt=0, start_version=0)
            finished(await pool.run(ticket, plan, on_retry=lambda _: None))

    at_once = min(len(tasks), max(1, concurrency // plan.group_size))
    players = [asyncio.ensure_future(one_after_another()) for _ in range(at_once)]
    try:
        await asyncio.gather(*players)
    finally:
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one plan's episodes came to."""

    accuracy: float | None  # over those that were graded: a failure is not a wrong answer. None where none was
    reward: float | None  # their mean
    episodes: int
    failures: int
    ends: Mapping[str, int]  # {"answered": 180, "turn_limit": 20}


def score(groups: Sequence[Group], reward: Any) -> Score:
    """reward: its config."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    graded = [each.reward for each in trajectories if not isinstance(each.reward, Failure)]
    return Score(
        accuracy=sum(solved(reward, each) for each in graded) / len(graded) if graded else None,
        reward=sum(each.value for each in graded) / len(graded) if graded else None,
        episodes=len(trajectories),
        failures=len(trajectories) - len(graded),
        ends=dict(Counter(str(each.end) for each in trajectories)),
    )
