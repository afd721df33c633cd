"""Trajectories to samples, samples to packed rows, rows to ranks. Deterministic: the same input gives the same batch.

Nothing is tokenised, padded or cut here. Shapes: L tokens of one sample, T of one row, S samples in a row.
What breaks a record's contract raises ValueError that names the turn or the sample.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np
import torch

from rlsys.batch import Batch, Row
from rlsys.outlines import Draft
from rlsys.types import Bools, Completion, Failure, Floats, Ints, Sample, Trajectory, Turn

# Attention's cost grows with L^2, everything else with L; for common sizes (hidden 1000 to 1500) they meet near here.
QUADRATIC_LENGTH = 8192

_PADDING_TOKENS = 2  # one would have nothing to predict


T = TypeVar("T")
S = TypeVar("S", Sample, Draft)


def sample_trajectory(trajectory: Trajectory, advantage: float) -> list[Sample]:
    """The training samples of one episode, every sampled token in exactly one of them.

    Turns share a sample as long as each context extends, token for token, the context and completion before it; where
    the context was rewritten (a dropped thought, another template) a new sample starts. Empty when nothing was sampled.
    Each sample carries the trajectory's reward, for its own last sampled token, and its tokens' part of every stream.
    """
    name = f"trajectory {trajectory.sibling} of task {trajectory.task.task_id!r}"
    if not math.isfinite(advantage):
        raise ValueError(f"advantage {advantage!r} of {name}: expected a finite number")
    reward = None if isinstance(trajectory.reward, Failure) else trajectory.reward.value
    streams = () if isinstance(trajectory.reward, Failure) else trajectory.reward.streams
    for stream in streams:
        if len(stream.values) != trajectory.num_sampled:
            found = f"{len(stream.values)} values for {trajectory.num_sampled} sampled tokens"
            raise ValueError(f"stream {stream.name!r} of {name}: {found}")
    samples, start, spoken = [], 0, 0
    pieces = iter([_piece(turn, f"turn {index} of {name}") for index, turn in enumerate(trajectory.turns)])
    for turns in _sharing(trajectory.turns):
        end = start + sum(len(turn.completion.token_ids) for turn in turns)
        together = list(islice(pieces, len(turns)))
        if end > start:
            own = tuple(replace(stream, values=stream.values[start:end]) for stream in streams)
            samples.append(_joined(together, advantage, reward=reward, streams=own, first_turn=spoken + 1))
        start = end
        spoken += sum(len(turn.completion.token_ids) > 0 for turn in turns)
    return samples


def _sharing(turns: Sequence[Turn]) -> list[Sequence[Turn]]:
    """The turns by the sample that they share."""
    starts = [index for index, turn in enumerate(turns) if turn.starts_sample or index == 0]
    return [turns[start:end] for start, end in pairwise([*starts, len(turns)])]


_Piece = tuple[Ints, Bools, Floats, Ints]  # [L] each: ids, loss mask, log-probabilities, versions of a turn


def _piece(turn: Turn, where: str) -> _Piece:
    completion, added, sampled = turn.completion, len(turn.added_ids), len(turn.completion.token_ids)
    if turn.starts_sample and not added:
        raise ValueError(f"{where}: an empty context, expected at least one token before what was sampled")
    if len(completion.logprobs) != sampled:
        raise ValueError(f"{where}: {len(completion.logprobs)} logprobs for {sampled} tokens")
    return (
        np.concatenate([turn.added_ids, completion.token_ids]),
        np.repeat([False, True], [added, sampled]),
        np.concatenate([np.zeros(added, np.float32), completion.logprobs]),
        np.concatenate([np.full(added, -1, np.int32), _versions(completion, where)]),
    )


def _joined(pieces: Sequence[_Piece], advantage: float, **more: Any) -> Sample:
    """It ends at the last sampled token: nothing after it is predicted."""
    token_ids, loss_mask, logprobs, versions = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    end = np.flatnonzero(loss_mask)[-1] + 1
    return Sample(
        token_ids=token_ids[:end],
        loss_mask=loss_mask[:end],
        behavior_logprobs=logprobs[:end],
        advantages=np.where(loss_mask[:end], np.float32(advantage), np.float32(0)),
        versions=versions[:end],
        **more,
    )


def pack(samples: Sequence[S], tokens_per_row: int, *, together: int = 1, in_order: bool = False) -> list[list[S]]:
    """Rows of at most `tokens_per_row` tokens, about equally long; a longer sample gets a row of its own.

    First-fit decreasing decides how many rows are needed; then each sample, longest first, goes to the emptiest row.
    Where that does not work out, the first-fit rows stand. in_order: rows are cut from the samples as they come, a few
    more of them perhaps; siblings then lie side by side, and a learner computes their prompt once (`learners.sharing`).
    Ties are broken by position: rows and the samples in them keep the order of `samples`. `together` consecutive
    samples (2: preference pairs) count as one: they stay side by side.
    """
    if tokens_per_row < 1:
        raise ValueError(f"tokens_per_row={tokens_per_row}: expected at least 1")
    units = _units(samples, together)
    lengths = [sum(sample.num_tokens for sample in unit) for unit in units]
    if in_order:
        rows = _in_order(lengths, tokens_per_row)
    else:
        longest_first = sorted(range(len(units)), key=lambda index: (-lengths[index], index))
        first_fit = _first_fit(longest_first, lengths, tokens_per_row)
        rows = _spread(longest_first, lengths, len(first_fit), tokens_per_row) or first_fit
    return [[sample for index in row for sample in units[index]] for row in sorted(sorted(row) for row in rows)]


def consecutive(items: Sequence[T], size: Callable[[T], int], limit: int) -> list[list[T]]:
    """The items in order, as many to a part as fit within `limit`; a larger one is a part of its own."""
    parts: list[list[T]] = []
    filled = 0
    for item in items:
        if not parts or filled + size(item) > limit:
            parts.append([])
            filled = 0
        parts[-1].append(item)
        filled += size(item)
    return parts


def make_row(samples: Sequence[Sample], minibatch: int = 0) -> Row:
    """Samples side by side in one row, positions restarting at each."""
    if not samples:
        raise ValueError("no samples: expected at least one in a row")
    for index, sample in enumerate(samples):
        _check(sample, index)
    lengths = [sample.num_tokens for sample in samples]
    discounts = (1.0, *(stream.discount for stream in samples[0].streams))

    def flat(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([getattr(sample, name) for sample in samples])).to(dtype)

    return Row(
        token_ids=flat("token_ids", torch.int64),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
        loss_mask=flat("loss_mask", torch.float32),
        behavior_logprobs=flat("behavior_logprobs", torch.float32),
        advantages=flat("advantages", torch.float32),
        versions=flat("versions", torch.int64),
        weights=torch.from_numpy(np.concatenate([np.float32(each.weight) * each.loss_mask for each in samples])),
        first_turns=torch.tensor([sample.first_turn for sample in samples]),
        share=share_of(samples),
        minibatch=minibatch,
        rewards=_rewards(samples),
        discounts=() if samples[0].reward is None else discounts,
    )


def make_batch(
    samples: Sequence[Sample],
    tokens_per_row: int,
    version: int,
    *,
    minibatches: int = 1,
    together: int = 1,
    in_order: bool = False,
) -> Batch:
    """Everything one update trains on. Raises ValueError when there is no sampled token: nothing could be averaged.

    Samples are dealt to `minibatches` in order, equally many to each (fewer minibatches where there are fewer samples),
    before they are packed: rows and ranks do not decide what an optimizer step sees.
    """
    planned = plan_rows(samples, tokens_per_row, minibatches=minibatches, together=together, in_order=in_order)
    return Batch(
        rows=tuple(make_row(row, index) for index, rows in enumerate(planned) for row in rows),
        num_samples=len(samples),
        num_loss_tokens=sum(sample.num_loss_tokens for sample in samples),
        version=version,
        denominators=denominators(planned),
    )


def plan_rows(
    samples: Sequence[S], tokens_per_row: int, *, minibatches: int, together: int = 1, in_order: bool = False
) -> list[list[list[S]]]:
    """Which samples share a row, by minibatch and row: see `make_batch`."""
    if not any(sample.num_loss_tokens for sample in samples):
        raise ValueError(f"{len(samples)} samples without a token to train on: expected at least one")
    if minibatches < 1:
        raise ValueError(f"minibatches={minibatches}: expected at least 1")
    units = _units(samples, together)
    minibatches = min(minibatches, len(units))
    bounds = [len(units) * index // minibatches for index in range(minibatches + 1)]
    dealt = ([sample for unit in units[start:end] for sample in unit] for start, end in pairwise(bounds))
    return [pack(part, tokens_per_row, together=together, in_order=in_order) for part in dealt]


def share_of(row: Sequence[S]) -> float:
    """What a row's samples add to the denominator of its minibatch."""
    return sum(float(each.num_loss_tokens) if each.share is None else each.share for each in row)


def denominators(planned: Sequence[Sequence[Sequence[S]]]) -> tuple[float, ...]:
    """Of each minibatch of planned rows."""
    return tuple(math.fsum(map(share_of, rows)) for rows in planned)


def split_rows(batch: Batch, world_size: int) -> list[Batch]:
    """One batch per rank, each with the same number of rows of every minibatch and about the same cost.

    A rank that comes out short gets rows without weight, so that all ranks do the same collectives. Counts and
    denominators stay those of the whole batch. Each rank has the most expensive row of a minibatch first, so that
    the rows that run at the same time on different ranks are alike.
    """
    if world_size < 1:
        raise ValueError(f"world_size={world_size}: expected at least 1")
    if not batch.rows:
        raise ValueError("a batch without rows: expected at least one")
    ranks: list[list[Row]] = [[] for _ in range(world_size)]
    for minibatch in range(len(batch.denominators)):
        rows = [row for row in batch.rows if row.minibatch == minibatch]
        dealt = deal([row_cost(row.cu_seqlens.diff().tolist()) for row in rows], world_size)
        for mine, indexes in zip(ranks, dealt, strict=True):
            mine += [rows[index] for index in indexes]
            mine += [padding_row(minibatch, rows[0].discounts)] * (max(map(len, dealt)) - len(indexes))
    return [replace(batch, rows=tuple(rows)) for rows in ranks]


def deal(costs: Sequence[float], world_size: int) -> list[list[int]]:
    """The rows of one minibatch, by index, to ranks: equally many to each, as far as they go."""
    rows_per_rank = math.ceil(len(costs) / world_size)
    ranks: list[list[int]] = [[] for _ in range(world_size)]
    loads = [0.0] * world_size
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        rank = min((r for r in range(world_size) if len(ranks[r]) < rows_per_rank), key=lambda r: (loads[r], r))
        ranks[rank].append(index)
        loads[rank] += costs[index]
    return ranks


def row_cost(lengths: Sequence[int]) -> float:
    """What a row of samples of these lengths costs to train, in tokens: the sum of L + L^2 / QUADRATIC_LENGTH."""
    return float(sum(length + length * length / QUADRATIC_LENGTH for length in lengths))


def _in_order(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Neighbours in as few rows as that takes, the longest of them as short as it can be."""

    def rows(limit: int) -> list[list[int]]:
        return consecutive(range(len(lengths)), lengths.__getitem__, limit)

    fewest = len(rows(capacity))  # which at last the whole capacity gives
    return rows(bisect_left(range(capacity), True, key=lambda limit: len(rows(limit)) <= fewest))


def _spread(
    longest_first: Sequence[int], lengths: Sequence[int], num_rows: int, capacity: int
) -> list[list[int]] | None:
    """Longest first, always to the emptiest of `num_rows` rows; None when something does not fit."""
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    emptiest = [(0, row) for row in range(num_rows)]  # a heap
    for index in longest_first:
        load, row = emptiest[0]
        if rows[row] and load + lengths[index] > capacity:
            return None
        rows[row].append(index)
        heapq.heapreplace(emptiest, (load + lengths[index], row))
    return rows


def _first_fit(order: Sequence[int], lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Each in `order` to the first row that has room for it, or to a new one."""
    rows: list[list[int]] = []
    room = np.empty(len(lengths), np.int64)
    for index in order:
        fits = room[: len(rows)] >= lengths[index]
        row = int(fits.argmax()) if fits.any() else len(rows)
        if row == len(rows):
            rows.append([])
            room[row] = capacity
        rows[row].append(index)
        room[row] -= lengths[index]
    return rows


def _versions(completion: Completion, where: str) -> Ints:
    done = 0
    for span in completion.spans:
        if span.start != done or span.end < span.start:
            raise ValueError(f"{where}: version span {span.start}:{span.end}, expected it to start at {done}")
        done = span.end
    if done != len(completion.token_ids):
        raise ValueError(f"{where}: version spans cover {done} of {len(completion.token_ids)} tokens")
    spans = completion.spans
    return np.repeat([span.version for span in spans], [span.end - span.start for span in spans]).astype(np.int32)


def _check(sample: Sample, index: int) -> None:
    length = sample.num_tokens
    if length == 0:
        raise ValueError(f"sample {index} of the row is empty: expected at least one token")
    for name in ("loss_mask", "behavior_logprobs", "advantages", "versions"):
        if len(getattr(sample, name)) != length:
            raise ValueError(f"sample {index} of the row: {len(getattr(sample, name))} {name} for {length} tokens")
    if sample.loss_mask[0] != 0:
        raise ValueError(f"sample {index} of the row: its first token is in the loss, but nothing predicts it")


def padding_row(minibatch: int, discounts: tuple[float, ...]) -> Row:
    """The shortest possible row, with weight 0. discounts: of the reward streams that its minibatch's rows have."""
    nothing = np.zeros(_PADDING_TOKENS, np.float32)
    sample = Sample(
        token_ids=np.zeros(_PADDING_TOKENS, np.int32),
        loss_mask=np.zeros(_PADDING_TOKENS, np.bool_),
        behavior_logprobs=nothing,
        advantages=nothing,
        versions=np.full(_PADDING_TOKENS, -1, np.int32),
        share=0.0,
    )
    rewards = torch.zeros(len(discounts), _PADDING_TOKENS) if discounts else None
    return replace(make_row([sample], minibatch), rewards=rewards, discounts=discounts)


def _units(samples: Sequence[S], together: int) -> list[Sequence[S]]:
    if together < 1 or len(samples) % together:
        raise ValueError(f"{len(samples)} samples in units of together={together}: expected a multiple")
    return [samples[start : start + together] for start in range(0, len(samples), together)]


def _rewards(samples: Sequence[Sample]) -> torch.Tensor | None:
    """[M, T] of a row: the value on each sample's last sampled token, then the streams; None where none has any."""
    kinds = {(sample.reward is None, tuple((s.name, s.discount) for s in sample.streams)) for sample in samples}
    if len(kinds) > 1:
        raise ValueError("samples of one row with different reward streams: expected the same in all trajectories")
    if samples[0].reward is None:
        return None
    columns = []
    for sample in samples:
        sampled = np.flatnonzero(sample.loss_mask)
        rewards = torch.zeros(1 + len(sample.streams), sample.num_tokens)
        if len(sampled) and sample.reward is not None:
            rewards[0, sampled[-1]] = sample.reward
        for number, stream in enumerate(sample.streams, 1):
            rewards[number, sampled] = torch.tensor(stream.values)
        columns.append(rewards)
    return torch.cat(columns, dim=1)
