"""A group: the siblings of one task, played at once and then, where a reward wants it, compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from rlsys.broken import failure_of
from rlsys.rollout import (
    Compare,
    Generate,
    MakeEnv,
    Renderer,
    RolloutPlan,
    Score,
    checked,
    run_episode,
    transcript_of,
)
from rlsys.seeds import derive
from rlsys.types import EpisodeEnd, Failure, Group, Reward, Ticket, Timings, Trajectory


async def run_group(
    ticket: Ticket,
    *,
    worker: str,
    make_env: MakeEnv,
    max_turns: int,
    plan: RolloutPlan,
    run_seed: int,
    renderer: Renderer,
    generate: Generate,
    score: Score,
    compare: Compare | None = None,
) -> Group:
    """All siblings of one task, at once. `compare` may change the rewards of those that were scored."""
    episodes = [
        asyncio.ensure_future(
            run_episode(
                ticket.task,
                make_env,
                max_turns=max_turns,
                plan=plan,
                seed=derive(run_seed, plan.purpose, ticket.sequence, sibling),
                sibling=sibling,
                renderer=renderer,
                generate=generate,
                score=score,
            )
        )
        for sibling in range(plan.group_size)
    ]
    try:
        trajectories = list(await asyncio.gather(*episodes))
    finally:
        for episode in episodes:
            episode.cancel()  # where the engine failed one of them, nobody waits for the others
    if compare is not None:
        await _compare(trajectories, compare)
    return Group(ticket=ticket, trajectories=tuple(trajectories), worker=worker)


async def _compare(trajectories: list[Trajectory], compare: Compare) -> None:
    """Give the scored siblings the rewards that `compare` makes of them. If it raises, they all become failures."""
    scored = [index for index, trajectory in enumerate(trajectories) if isinstance(trajectory.reward, Reward)]
    rewards = [trajectories[index].reward for index in scored]
    outcomes: Sequence[Reward | Failure]
    try:
        transcripts = [transcript_of(trajectories[index].task, trajectories[index]) for index in scored]
        compared = compare(transcripts, rewards)  # type: ignore[arg-type]
        outcomes = list(map(checked, await compared if isinstance(compared, Awaitable) else compared))
        if len(outcomes) != len(scored):
            raise ValueError(f"the comparison gave {len(outcomes)} rewards for {len(scored)} trajectories")
    except Exception as error:
        outcomes = [failure_of(error, "reward")] * len(scored)
    for index, outcome in zip(scored, outcomes, strict=True):
        failed = {"end": EpisodeEnd.FAILED, "ended": trajectories[index].end} if isinstance(outcome, Failure) else {}
        trajectories[index] = replace(trajectories[index], reward=outcome, **failed)  # type: ignore[arg-type]


def failed_group(ticket: Ticket, plan: RolloutPlan, failure: Failure) -> Group:
    """Of a group that no worker could play."""
    siblings = tuple(
        Trajectory(
            task=ticket.task,
            sibling=sibling,
            turns=(),
            messages=(),
            end=EpisodeEnd.FAILED,
            reward=failure,
            timings=Timings(generate_s=0.0, tool_s=0.0, score_s=0.0),
        )
        for sibling in range(plan.group_size)
    )
    return Group(ticket=ticket, trajectories=siblings, worker="none")
