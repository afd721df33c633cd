"""A group: the siblings of one task, played at once and then, where a reward wants it, compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rlsys.broken import failure_of
from rlsys.finite import require_finite
from rlsys.rollout import EpisodeSource, Player, RolloutPlan, run_episode, transcript_of
from rlsys.seeds import derive_seed
from rlsys.types import EpisodeEnd, Failure, Group, Reward, Ticket, Timings, Trajectory


async def run_group(player: Player, source: EpisodeSource, ticket: Ticket, plan: RolloutPlan) -> Group:
    """All siblings of one task, at once. The source's `compare` may change the rewards of those that were scored."""
    max_turns = await source.max_turns()
    seeds = [derive_seed(player.run_seed, plan.purpose, ticket.sequence, sibling) for sibling in range(plan.group_size)]
    episodes = [
        asyncio.ensure_future(
            run_episode(player, source, ticket.task, plan, max_turns=max_turns, seed=seed, sibling=sibling)
        )
        for sibling, seed in enumerate(seeds)
    ]
    try:
        trajectories = list(await asyncio.gather(*episodes))
    finally:
        for episode in episodes:
            episode.cancel()  # if the engine failed one of them, the others are not needed
    await _compare(trajectories, source)
    return Group(ticket=ticket, trajectories=tuple(trajectories), worker=player.name)


async def _compare(trajectories: list[Trajectory], source: EpisodeSource) -> None:
    """Give the scored siblings the rewards that `compare` makes of them. If it raises, they all become failures."""
    scored = [index for index, trajectory in enumerate(trajectories) if isinstance(trajectory.reward, Reward)]
    rewards = [trajectories[index].reward for index in scored]
    outcomes: Sequence[Reward | Failure]
    try:
        transcripts = [transcript_of(trajectories[index].task, trajectories[index]) for index in scored]
        outcomes = list(map(require_finite, await source.compare(transcripts, rewards)))  # type: ignore[arg-type]
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
