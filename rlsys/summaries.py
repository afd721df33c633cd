"""What the driver sees of a group: what its trajectories came to, how long they are, and whether it has a signal.

Tokens and text stay where they were made until they are needed: by ranks, for the samples that they train, and by the
code that writes trajectories to a file.

A group has a signal where its rewards give the algorithm something to learn from. `credit_group` says it, to all:

    loop.oversample              the place of a group without signal goes to another
    rlsys.harvest                a group without signal is not trained
    curriculum.name=difficulty   a task whose groups have no signal rests
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from rlsys.metrics import Mean, Metric, Metrics, merge
from rlsys.types import EpisodeEnd, Failure, Group, Ints, Reward, Ticket, Timings, Trajectory

# What an environment counts with `Step.metrics` under these names has columns `episode/*`, any other name one `env/*`.
CALLS = "calls"  # made: a message that holds one, within the limit of calls
VALID = "valid_calls"  # of them those that the tool carried out
REPEATED = "repeated_calls"  # of them those made before in the same episode
REPLIES = "reply_tokens"  # what the environment said, with its chat marks
SHARED = (CALLS, VALID, REPEATED, REPLIES)
AGENT_ERRORS = "agent_errors"  # agents that ended with an error of their own: `state["error"]` of the episode names it
MOST_TURNS = 8  # columns of `answered_by_N`


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
    reward: Reward | Failure  # of each stream only the sum, without what a judge said
    timings: Timings
    num_sampled: int
    retried: tuple[Failure, ...] = ()
    discarded_tokens: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    agent_error: str = ""  # with which its agent ended

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
        reward = replace(reward, streams=streams, judgements=None, findings=())
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
        retried=tuple(replace(failure, trace="") for failure in trajectory.retried),
        discarded_tokens=trajectory.discarded_tokens,
        metrics=trajectory.metrics,
        agent_error=_agent_error(trajectory),
    )


def _agent_error(trajectory: Trajectory) -> str:
    return str((trajectory.state or {}).get("error", "")) if AGENT_ERRORS in trajectory.metrics else ""


def summarize_group(group: Group) -> tuple[TrajectorySummary, ...]:
    return tuple(map(summarize, group.trajectories))


def refer_to(group: Group) -> GroupRef:
    """A group that lies in this process."""
    return GroupRef(ticket=group.ticket, summaries=summarize_group(group), source=group)


Truncated = Literal["train", "mask", "leave_out"]  # what becomes of an episode that a limit of tokens or time cut off


class Advantages(Protocol):
    """The part of an algorithm that says it: see `learners.algorithms.base.Algorithm`."""

    @property
    def truncated(self) -> Truncated: ...
    def advantages(self, rewards: Sequence[float]) -> list[float] | None: ...


def rewards_of(group: GroupRef) -> list[float]:
    """One per sibling, `nan` for a failed one."""
    return [summary.reward.value if isinstance(summary.reward, Reward) else math.nan for summary in group.summaries]


def _has_signal(algorithm: Advantages, rewards: Sequence[float]) -> bool | None:
    """None where all siblings failed: that says nothing of the task."""
    return None if all(map(math.isnan, rewards)) else algorithm.advantages(rewards) is not None


def credit_group(algorithm: Advantages, group: GroupRef) -> tuple[bool | None, list[float] | None]:
    """(whether the group has a signal, the advantage of each sibling or None where the group is not trained).

    nan stands for a sibling that is not trained: a failed one, and one that was cut off, if the algorithm masks these.
    With `mask` its reward still counts in the baseline of the others, with `leave_out` it does not.
    """
    rewards = rewards_of(group)
    if all(map(math.isnan, rewards)):
        return None, None
    cut = [algorithm.truncated != "train" and summary.end.truncates for summary in group.summaries]
    if algorithm.truncated == "leave_out":
        rewards = [math.nan if off else reward for off, reward in zip(cut, rewards, strict=True)]
    credit = None if all(map(math.isnan, rewards)) else algorithm.advantages(rewards)
    if credit is not None and any(cut):
        credit = [math.nan if off else advantage for off, advantage in zip(cut, credit, strict=True)]
        if all(map(math.isnan, credit)):
            credit = None
    return credit is not None, credit


def can_lack_signal(algorithm: Advantages, group_size: int) -> bool:
    """Whether a group can lack a signal: subtracting the group's baseline from equal rewards leaves zero advantages."""
    return not all(_has_signal(algorithm, [reward] * group_size) for reward in (0.0, 1.0))


def never_has_signal(algorithm: Advantages, group_size: int) -> bool:
    """Whether no group can have a signal: a single episode has no sibling to be compared with."""
    return group_size == 1 and not any(_has_signal(algorithm, [reward]) for reward in (0.0, 1.0))


def use_metrics(trajectories: Sequence[TrajectorySummary]) -> Metrics:
    """Means over all trajectories: one in which nothing of a name was counted has 0 of it.

    `episode/calls` and the other shared names, where some episode has them; `episode/response_tokens`, the length with
    what tools said, next to `episode/tokens` without; `episode/answered_by_2`, the share of the episodes that had given
    their answer with their second message or before.
    """
    names = sorted({name for trajectory in trajectories for name in trajectory.metrics})
    rows: list[Metrics] = []
    longest = min(max((len(trajectory.turns) for trajectory in trajectories), default=0), MOST_TURNS)
    for trajectory in trajectories:
        row: dict[str, Metric] = {column(name): Mean(trajectory.metrics.get(name, 0.0)) for name in names}
        row["episode/response_tokens"] = Mean(trajectory.num_sampled + trajectory.metrics.get(REPLIES, 0.0))
        answered = len(trajectory.turns) if trajectory.end is EpisodeEnd.ANSWERED else longest + 1
        row |= {f"episode/answered_by_{turn}": Mean(float(answered <= turn)) for turn in range(1, longest + 1)}
        rows.append(row)
    return merge(rows)


def column(name: str) -> str:
    return f"episode/{name}" if name in SHARED else f"env/{name}"
