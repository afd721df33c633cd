"""What the driver sees of a group: what its trajectories came to and how long they are.

Tokens and text stay where they were made until somebody needs them: ranks, for the rows that they train, and whoever
writes trajectories to a file. A draft is a training sample of which that much is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rlsys.types import EpisodeEnd, Failure, Group, Reward, Ticket, Timings, Trajectory, Turn, VersionSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutline:
    """A `Turn` by the numbers of its tokens."""

    starts_sample: bool
    num_added: int
    num_sampled: int
    spans: tuple[VersionSpan, ...]  # cover 0:num_sampled


AnyTurn = TypeVar("AnyTurn", Turn, TurnOutline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A `Trajectory` without tokens, text and task; the fields that are left have its names."""

    sibling: int
    turns: tuple[TurnOutline, ...]
    end: EpisodeEnd
    reward: Reward | Failure  # its streams have no values, and nothing is told of a judge
    timings: Timings
    repeated_calls: int = 0
    retried: tuple[Failure, ...] = ()
    discarded_tokens: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def num_sampled(self) -> int:
        return sum(turn.num_sampled for turn in self.turns)

    @property
    def versions(self) -> frozenset[int]:
        """The weights that sampled its tokens."""
        return frozenset(span.version for turn in self.turns for span in turn.spans)

    @property
    def oldest_version(self) -> int | None:
        """None when nothing was sampled."""
        return min(self.versions, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A group that was played, and where it lies."""

    ticket: Ticket
    outlines: tuple[Outline, ...]  # [G]
    source: Any = field(repr=False)  # a reference to the `Group`, or the group itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A `Sample` whose tokens are elsewhere."""

    sequence: int  # of its group
    sibling: int
    number: int  # among the samples of its trajectory
    num_tokens: int
    num_loss_tokens: int
    advantage: float
    weight: float = 1.0
    share: float | None = None


def shared(turns: Sequence[AnyTurn]) -> list[list[AnyTurn]]:
    """The turns by the sample that they share."""
    runs: list[list[AnyTurn]] = []
    for turn in turns:
        if turn.starts_sample or not runs:
            runs.append([])
        runs[-1].append(turn)
    return runs


def outline(trajectory: Trajectory) -> Outline:
    reward = trajectory.reward
    if isinstance(reward, Reward):
        streams = tuple(replace(stream, values=()) for stream in reward.streams)
        reward = replace(reward, streams=streams, judgements=None)
    return Outline(
        sibling=trajectory.sibling,
        turns=tuple(
            TurnOutline(
                starts_sample=turn.starts_sample,
                num_added=len(turn.added_ids),
                num_sampled=len(turn.completion.token_ids),
                spans=turn.completion.spans,
            )
            for turn in trajectory.turns
        ),
        end=trajectory.end,
        reward=reward,
        timings=trajectory.timings,
        repeated_calls=trajectory.repeated_calls,
        retried=trajectory.retried,
        discarded_tokens=trajectory.discarded_tokens,
        metrics=trajectory.metrics,
    )


def outlines(group: Group) -> tuple[Outline, ...]:
    return tuple(map(outline, group.trajectories))


def played(group: Group) -> Played:
    """A group that lies in this process."""
    return Played(ticket=group.ticket, outlines=outlines(group), source=group)


def drafts(
    outline: Outline, *, sequence: int, advantage: float, version: int, max_token_lag: int | None
) -> tuple[list[Draft], int]:
    """The samples that `rlsys.packing.sample_trajectory` and `rlsys.off_policy.mask_stale` make of a trajectory, and
    the number of sampled tokens that are too old for the loss."""
    if not math.isfinite(advantage):
        raise ValueError(f"advantage {advantage!r} of group {sequence}: expected a finite number")
    found: list[Draft] = []
    number = stale = 0
    for turns in shared(outline.turns):
        sampled = [index for index, turn in enumerate(turns) if turn.num_sampled]
        if not sampled:
            continue
        spans = [span for turn in turns for span in turn.spans]
        old = [span for span in spans if max_token_lag is not None and version - span.version > max_token_lag]
        num_old = sum(span.end - span.start for span in old)
        fresh = sum(turn.num_sampled for turn in turns) - num_old
        stale += num_old
        if fresh:
            found.append(
                Draft(
                    sequence=sequence,
                    sibling=outline.sibling,
                    number=number,
                    num_tokens=sum(turn.num_added + turn.num_sampled for turn in turns[: sampled[-1] + 1]),
                    num_loss_tokens=fresh,
                    advantage=advantage,
                )
            )
        number += 1
    return found, stale
