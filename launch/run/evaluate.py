"""Held-out tasks: played greedily, and sampled at the configured temperature, on the engines that training uses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envs.rewards import Measure, measure_of, solved
from launch.run import wire
from rlsys.config import RecipeConfig, StageConfig
from rlsys.harvest import first_of
from rlsys.rollout import RolloutPlan
from rlsys.types import Failure, Group, Reward, Task, Ticket

if TYPE_CHECKING:
    from actors.pool import RolloutPool
    from launch.run.run import Run


async def evaluate(run: Run, stage: StageConfig, when: str) -> dict[str, float]:
    """{"greedy": number, "sampled": number} on the held-out tasks; the episodes are kept in trajectories/.

    The number is an accuracy, or the mean reward where the reward does not say what solves a task. A play of which more
    than `loop.max_failed_share` failed has none; training goes on, which has that limit for its own episodes.
    """
    recipe = stage.config
    tasks = run.world.tasks("held_out")[: recipe.eval.tasks]
    run.progress.begin(f"evaluating {when}: {len(tasks)} held-out tasks, greedy and {recipe.eval.samples} sampled")
    scores: dict[str, Score] = {}
    for name, plan in plans(recipe).items():
        run.progress.doing(f"evaluating {when}, {name}: tasks played")
        groups = await rollout_tasks(run.pool, tasks, plan, recipe.eval.concurrency, run.progress.count)
        scores[name] = score(groups, recipe.reward, recipe.loop.max_failed_share)
        run.tracker.evaluated(run.state.step, name, scores[name].row())
        run.dir.save_trajectories(f"eval-{when}-{name}", groups, {})
    run.progress.say(f"held-out {measure_of(recipe.reward)} {when}: {told(scores)}")
    state = run.state
    state.generated += sum(each.tokens for each in scores.values())
    state.discarded += sum(each.discarded for each in scores.values())
    state.eval_measure[when] = measure_of(recipe.reward)
    state.eval_episodes[when] = {name: each.episodes for name, each in scores.items()}
    state.eval_failures[when] = {name: each.failures for name, each in scores.items()}
    numbers = {f"{name}/{key}": number for name, each in scores.items() for key, number in each.row().items()}
    run.dir.save_evaluation({"step": state.step, "stage": stage.name, "when": when, **numbers})
    return {name: round(each.value, 4) for name, each in scores.items() if each.value is not None}


def plans(recipe: RecipeConfig) -> dict[str, RolloutPlan]:
    drawn = {"greedy": (1, 0.0), "sampled": (recipe.eval.samples, recipe.eval.temperature)}
    return {
        name: wire.rollout_plan(recipe, f"eval-{name}", group_size=size, temperature=temperature)
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
    """What one plan's episodes came to. A failure is not a wrong answer: both numbers are over those that were graded.
    They are None where none was, and where more failed than `limit` allows."""

    accuracy: float | None  # None too where the reward does not say what solves a task
    mean_reward: float | None
    measure: Measure  # which of them stands for the whole
    episodes: int
    failed: Sequence[Failure]
    limit: float  # loop.max_failed_share
    ends: Mapping[str, int]  # {"answered": 180, "turn_limit": 20}
    tokens: int  # that the model sampled in them
    discarded: int  # and in attempts that broke

    @property
    def failures(self) -> int:
        return len(self.failed)

    @property
    def value(self) -> float | None:
        return self.accuracy if self.measure == "accuracy" else self.mean_reward

    def row(self) -> dict[str, float]:
        numbers = {"accuracy": self.accuracy, "mean_reward": self.mean_reward}
        counted = {"episodes": self.episodes, "failures": self.failures}
        return {name: number for name, number in numbers.items() if number is not None} | counted


def score(groups: Sequence[Group], reward: Any, limit: float) -> Score:
    """reward: its config. limit: the share of the episodes that may have failed."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    graded = [each.reward for each in trajectories if isinstance(each.reward, Reward)]
    failed = [each.reward for each in trajectories if isinstance(each.reward, Failure)]
    measure = measure_of(reward)
    sound = bool(graded) and len(failed) <= limit * len(trajectories)
    right = sum(solved(reward, each) for each in graded)
    return Score(
        accuracy=right / len(graded) if sound and measure == "accuracy" else None,
        mean_reward=sum(each.value for each in graded) / len(graded) if sound else None,
        measure=measure,
        episodes=len(trajectories),
        failed=failed,
        limit=limit,
        ends=dict(Counter(str(each.end) for each in trajectories)),
        tokens=sum(each.num_sampled for each in trajectories),
        discarded=sum(each.discarded_tokens for each in trajectories),
    )


def told(scores: Mapping[str, Score]) -> str:
    """In one line, for people: "greedy 0.375, sampled 0.410; greedy: 16 of 24 graded, 8 failed; the first: ..." """
    numbers = (f"{name} {'none' if each.value is None else f'{each.value:.3f}'}" for name, each in scores.items())
    parts = [", ".join(numbers)]
    for name, each in scores.items():
        if each.failed:
            graded = each.episodes - each.failures
            too_many = each.failures > each.limit * each.episodes
            over = f", above loop.max_failed_share={each.limit:g}" if too_many else ""
            parts.append(f"{name}: {graded} of {each.episodes} graded, {each.failures} failed{over}")
    failed = [failure for each in scores.values() for failure in each.failed]
    return "; ".join([*parts, first_of(failed)] if failed else parts)
