"""What the driver sees of a group: what its trajectories came to and how long they are.

Tokens and text stay where they were made until somebody needs them: ranks, for the samples that they train, and whoever
writes trajectories to a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlsys.types import EpisodeEnd, Failure, Group, Ints, Reward, Ticket, Timings, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrajectorySummary:
    """A `Trajectory` without tokens, text and task; the fields that are left have its names.

    Turns are rows of arrays: thousands of trajectories of many turns are open at once, and each object more is one that
    the garbage collector looks at while everybody waits.
    """

    sibling: int
    turns: Ints  # [turns, 3]: `count_tokens`
    spans: Ints  # [spans, 3]: the turn, the version, how many of its tokens that version sampled
    end: EpisodeEnd
    reward: Reward | Failure  # of each stream the sum alone, and nothing is told of a judge
    timings: Timings
    num_sampled: int
    retried: tuple[Failure, ...] = ()
    discarded_tokens: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def versions(self) -> frozenset[int]:
        """The weights that sampled its tokens."""
        return frozenset(self.spans[:, 1].tolist())

    @property
    def oldest_version(self) -> int | None:
        """None when nothing was sampled."""
        return min(self.versions, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRef:
    """A group that was played, and where it lies."""

    ticket: Ticket
    summaries: tuple[TrajectorySummary, ...]  # [G]
    source: Any = field(repr=False)  # a reference to the `Group`, or the group itself


def count_tokens(trajectory: Trajectory) -> Ints:
    """[turns, 3]: whether the turn starts a sample, tokens that it adds to the context, tokens sampled."""
    turns = [(turn.starts_sample, len(turn.added_ids), len(turn.completion.token_ids)) for turn in trajectory.turns]
    return np.array(turns, np.int32).reshape(-1, 3)


def summarize(trajectory: Trajectory) -> TrajectorySummary:
    reward = trajectory.reward
    if isinstance(reward, Reward):
        streams = tuple(replace(stream, values=(sum(stream.values),)) for stream in reward.streams)
        reward = replace(reward, streams=streams, judgements=None)
    else:
        reward = replace(reward, trace="")
    by_turn = enumerate(turn.completion.spans for turn in trajectory.turns)
    spans = [(number, span.version, span.end - span.start) for number, of_turn in by_turn for span in of_turn]
    return TrajectorySummary(
        sibling=trajectory.sibling,
        turns=count_tokens(trajectory),
        spans=np.array(spans, np.int32).reshape(-1, 3),
        end=trajectory.end,
        reward=reward,
        timings=trajectory.timings,
        num_sampled=trajectory.num_sampled,
        retried=tuple(replace(each, trace="") for each in trajectory.retried),
        discarded_tokens=trajectory.discarded_tokens,
        metrics=trajectory.metrics,
    )


def summarize_group(group: Group) -> tuple[TrajectorySummary, ...]:
    return tuple(map(summarize, group.trajectories))


def refer_to(group: Group) -> GroupRef:
    """A group that lies in this process."""
    return GroupRef(ticket=group.ticket, summaries=summarize_group(group), source=group)
