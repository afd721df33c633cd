"""What the driver sees of a group: what its trajectories came to and how long they are.

Tokens and text stay where they were made until somebody needs them: ranks, for the rows that they train, and whoever
writes trajectories to a file. A draft is a training sample of which that much is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from rlsys.types import EpisodeEnd, Failure, Group, Ints, Reward, Ticket, Timings, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outline:
    """A `Trajectory` without tokens, text and task; the fields that are left have its names.

    Turns are rows of arrays: thousands of trajectories of many turns are open at once, and each object more is one that
    the garbage collector looks at while everybody waits.
    """

    sibling: int
    turns: Ints  # [turns, 3]: whether it starts a sample, tokens that it adds to the context, tokens sampled
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


def outline(trajectory: Trajectory) -> Outline:
    reward = trajectory.reward
    if isinstance(reward, Reward):
        streams = tuple(replace(stream, values=(sum(stream.values),)) for stream in reward.streams)
        reward = replace(reward, streams=streams, judgements=None)
    else:
        reward = replace(reward, trace="")
    said = [(turn.starts_sample, len(turn.added_ids), len(turn.completion.token_ids)) for turn in trajectory.turns]
    by_turn = enumerate(turn.completion.spans for turn in trajectory.turns)
    spans = [(number, span.version, span.end - span.start) for number, of_turn in by_turn for span in of_turn]
    return Outline(
        sibling=trajectory.sibling,
        turns=np.array(said, np.int32).reshape(-1, 3),
        spans=np.array(spans, np.int32).reshape(-1, 3),
        end=trajectory.end,
        reward=reward,
        timings=trajectory.timings,
        num_sampled=trajectory.num_sampled,
        retried=tuple(replace(each, trace="") for each in trajectory.retried),
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
    stale = 0
    too_old = -math.inf if max_token_lag is None else version - max_token_lag  # below this
    fresh = [0] * len(outline.turns)
    for turn, sampled_by, count in outline.spans.tolist():
        fresh[turn] += count if sampled_by >= too_old else 0
    samples = [run for run in _sharing(outline.turns.tolist()) if any(sampled for _, _, sampled in run.turns)]
    for number, run in enumerate(samples):
        num_fresh = sum(fresh[run.first : run.first + len(run.turns)])
        stale += sum(sampled for _, _, sampled in run.turns) - num_fresh
        if num_fresh:
            found.append(
                Draft(
                    sequence=sequence,
                    sibling=outline.sibling,
                    number=number,
                    num_tokens=run.num_tokens,
                    num_loss_tokens=num_fresh,
                    advantage=advantage,
                )
            )
    return found, stale


@dataclass(slots=True)
class _Run:
    """Turns that share a sample."""

    first: int
    turns: list[list[int]]

    @property
    def num_tokens(self) -> int:
        """Up to the last one that was sampled."""
        last = max(index for index, (_, _, sampled) in enumerate(self.turns) if sampled)
        return sum(added + sampled for _, added, sampled in self.turns[: last + 1])


def _sharing(turns: list[list[int]]) -> list[_Run]:
    starts = [index for index, (begins, _, _) in enumerate(turns) if begins or index == 0]
    return [_Run(start, turns[start:end]) for start, end in pairwise([*starts, len(turns)])]
