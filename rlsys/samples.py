"""Trajectories to training samples: the samples with their tokens, or references to them by counts alone.

The driver counts with `sample_refs` what the ranks later make with `sample_trajectory` and `mask_stale`. Which turns
share a sample, where it ends (`layouts`) and which tokens are too old for the loss (`is_fresh`) is said once, for both.

Nothing is tokenised, padded or cut here. What breaks a record's contract raises ValueError that names the turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np

from rlsys.summaries import TrajectorySummary, count_tokens
from rlsys.types import Bools, Completion, Failure, Floats, Ints, Sample, Trajectory, Turn

SampleKey = tuple[int, int, int]  # group_id, sibling, number of a `SampleRef`


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRef:
    """A `Sample` whose tokens are elsewhere."""

    group_id: int  # a group's sequence; of given samples, the place of this one
    sibling: int = 0
    number: int = 0  # among the samples of its trajectory
    num_tokens: int
    num_loss_tokens: int
    advantage: float = 0.0
    weight: float = 1.0
    share: float | None = None

    @property
    def key(self) -> SampleKey:
        return self.group_id, self.sibling, self.number


class Layout(NamedTuple):
    """Turns `first` to `end` (exclusive) share a sample."""

    first: int
    end: int
    num_tokens: int


def layouts(turns: Ints) -> list[Layout]:
    """The samples of a trajectory, by its `count_tokens`: of turns in which something was sampled.

    Turns share a sample as long as each context extends, token for token, the context and completion before it; where
    the context was rewritten (a dropped thought, another template) a new sample starts. A sample ends at its last
    sampled token: nothing after it is predicted.
    """
    counts = turns.tolist()
    starts = [index for index, (begins, _, _) in enumerate(counts) if begins or index == 0]
    samples = []
    for first, end in pairwise([*starts, len(counts)]):
        last = max((index for index in range(first, end) if counts[index][2]), default=None)
        if last is not None:
            samples.append(Layout(first, end, sum(added + sampled for _, added, sampled in counts[first : last + 1])))
    return samples


def is_fresh(sampled_by: Ints, *, version: int, max_token_lag: int | None) -> Bools:
    """Which tokens are young enough for the loss of `version`, from the version that sampled each.

    Too old are those of weights older than `version - max_token_lag`; None: none are.
    """
    if max_token_lag is None:
        return np.ones(len(sampled_by), np.bool_)
    return version - sampled_by <= max_token_lag


def sample_refs(
    summary: TrajectorySummary, *, group_id: int, advantage: float, version: int, max_token_lag: int | None
) -> tuple[list[SampleRef], int]:
    """References to the samples of a trajectory that have a token for the loss of `version`, and the number of sampled
    tokens that are too old for it."""
    if not math.isfinite(advantage):
        raise ValueError(f"advantage {advantage!r} of group {group_id}: expected a finite number")
    fresh = is_fresh(summary.spans[:, 1], version=version, max_token_lag=max_token_lag)
    by_turn, stale = [0] * len(summary.turns), 0
    for (turn, _, count), young in zip(summary.spans.tolist(), fresh.tolist(), strict=True):
        by_turn[turn] += count if young else 0
        stale += 0 if young else count
    refs = [
        SampleRef(
            group_id=group_id,
            sibling=summary.sibling,
            number=number,
            num_tokens=layout.num_tokens,
            num_loss_tokens=sum(by_turn[layout.first : layout.end]),
            advantage=advantage,
        )
        for number, layout in enumerate(layouts(summary.turns))
    ]
    return [ref for ref in refs if ref.num_loss_tokens], stale


def sample_trajectory(trajectory: Trajectory, advantage: float) -> list[Sample]:
    """The training samples of one episode, every sampled token in exactly one of them (`layouts`).

    Empty when nothing was sampled. Each sample carries the trajectory's reward, for its own last sampled token, and its
    tokens' part of every stream.
    """
    name = f"trajectory {trajectory.sibling} of task {trajectory.task.task_id!r}"
    if not math.isfinite(advantage):
        raise ValueError(f"advantage {advantage!r} of {name}: expected a finite number")
    reward = None if isinstance(trajectory.reward, Failure) else trajectory.reward.value
    streams = () if isinstance(trajectory.reward, Failure) else trajectory.reward.streams
    for stream in streams:
        if len(stream.values) != trajectory.num_sampled:
            mismatch = f"{len(stream.values)} values for {trajectory.num_sampled} sampled tokens"
            raise ValueError(f"stream {stream.name!r} of {name}: {mismatch}")
    pieces = [_turn_piece(turn, f"turn {index} of {name}") for index, turn in enumerate(trajectory.turns)]
    turns = count_tokens(trajectory)
    sampled = [0, *turns[:, 2].cumsum().tolist()]  # before each turn
    return [
        _join_pieces(
            pieces[layout.first : layout.end],
            layout.num_tokens,
            advantage,
            reward=reward,
            streams=tuple(
                replace(stream, values=stream.values[sampled[layout.first] : sampled[layout.end]]) for stream in streams
            ),
            first_turn=1 + int(np.count_nonzero(turns[: layout.first, 2])),
        )
        for layout in layouts(turns)
    ]


def mask_stale(sample: Sample, *, version: int, max_token_lag: int | None) -> Sample | None:
    """The sample with its too old tokens (`is_fresh`) turned into context: the model sees them, the loss does not.

    None when all sampled tokens are too old. A turn may span versions; then only its older part becomes context.
    Streams lose the values of those tokens; the trajectory's reward stays on the last sampled token, the newest. Call
    it before the sample is weighed, so that the loss stays a mean over the tokens that are trained.
    """
    fresh = is_fresh(sample.versions, version=version, max_token_lag=max_token_lag)
    loss_mask = sample.loss_mask & fresh
    if np.array_equal(loss_mask, sample.loss_mask):
        return sample
    if not loss_mask.any():
        return None
    keep_mask = fresh[sample.loss_mask]
    streams = tuple(replace(stream, values=tuple(compress(stream.values, keep_mask))) for stream in sample.streams)
    advantages = np.where(loss_mask, sample.advantages, np.float32(0))
    return replace(sample, loss_mask=loss_mask, advantages=advantages, streams=streams)


def advantages_by_turn(
    trajectory: Trajectory, parts: Mapping[int, Floats], *, version: int, max_token_lag: int | None
) -> list[Floats]:
    """Of each turn, for each sampled token, the advantage that the update gave it; nan where it was not trained.

    parts: by number of the sample, of its tokens that were in the loss of `version`. Empty where they do not fit.
    """
    advantages = [np.full(len(turn.completion.token_ids), np.nan, np.float32) for turn in trajectory.turns]
    for number, layout in enumerate(layouts(count_tokens(trajectory))):
        values, at = parts.get(number), 0
        if values is None:
            continue
        for index in range(layout.first, layout.end):
            versions = _token_versions(trajectory.turns[index].completion, f"turn {index}")
            fresh = np.flatnonzero(is_fresh(versions, version=version, max_token_lag=max_token_lag))
            if at + len(fresh) > len(values):
                return []
            advantages[index][fresh] = values[at : at + len(fresh)]
            at += len(fresh)
        if at != len(values):
            return []
    return advantages


_Piece = tuple[Ints, Bools, Floats, Ints]  # [L] each: ids, loss mask, log-probabilities, versions of a turn


def _turn_piece(turn: Turn, where: str) -> _Piece:
    """What a prompt, a tool or the environment wrote is outside of the loss mask (elsewhere `response_mask`)."""
    completion, added, sampled = turn.completion, len(turn.added_ids), len(turn.completion.token_ids)
    if turn.starts_sample and not added:
        raise ValueError(f"{where}: an empty context, expected at least one token before what was sampled")
    if len(completion.logprobs) != sampled:
        raise ValueError(f"{where}: {len(completion.logprobs)} logprobs for {sampled} tokens")
    return (
        np.concatenate([turn.added_ids, completion.token_ids]),
        np.repeat([False, True], [added, sampled]),
        np.concatenate([np.zeros(added, np.float32), completion.logprobs]),
        np.concatenate([np.full(added, -1, np.int32), _token_versions(completion, where)]),
    )


def _join_pieces(pieces: Sequence[_Piece], num_tokens: int, advantage: float, **more: Any) -> Sample:
    token_ids, loss_mask, logprobs, versions = (
        np.concatenate(parts)[:num_tokens] for parts in zip(*pieces, strict=True)
    )
    return Sample(
        token_ids=token_ids,
        loss_mask=loss_mask,
        behavior_logprobs=logprobs,
        advantages=np.where(loss_mask, np.float32(advantage), np.float32(0)),
        versions=versions,
        **more,
    )


def _token_versions(completion: Completion, where: str) -> Ints:
    position = 0
    for span in completion.spans:
        if span.start != position or span.end < span.start:
            raise ValueError(f"{where}: version span {span.start}:{span.end}, expected it to start at {position}")
        position = span.end
    if position != len(completion.token_ids):
        raise ValueError(f"{where}: version spans cover {position} of {len(completion.token_ids)} tokens")
    spans = completion.spans
    return np.repeat([span.version for span in spans], [span.end - span.start for span in spans]).astype(np.int32)
