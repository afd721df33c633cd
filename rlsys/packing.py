"""Trajectories to samples, samples to packed rows, rows to ranks. Deterministic: the same input gives the same batch.

Nothing is tokenised, padded or cut here. Shapes: L tokens of one sample, T of one row, S samples in a row.
What breaks a record's contract raises ValueError that names the turn or the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import torch

from rlsys.batch import Batch, Row
from rlsys.types import Completion, Failure, Sample, TokenStream, Trajectory

# Attention's cost grows with L^2, everything else with L; for common sizes (hidden 1000 to 1500) they meet near here.
QUADRATIC_LENGTH = 8192

_PADDING_TOKENS = 2  # one would have nothing to predict


T = TypeVar("T")
_Token = tuple[int, int, float, int]  # id, loss mask, log-probability, version: of a sample that is still growing


def sample_trajectory(trajectory: Trajectory, advantage: float) -> list[Sample]:
    """The training samples of one episode, every sampled token in exactly one of them.

    Turns share a sample as long as each context extends, token for token, the context and completion before it; where
    the context was rewritten (a dropped thought, another template) a new sample starts. Empty when nothing was sampled.
    Each sample carries the trajectory's reward, for its own last sampled token, and its tokens' part of every stream.
    """
    name = f"trajectory {trajectory.sibling} of task {trajectory.task.task_id!r}"
    if not math.isfinite(advantage):
        raise ValueError(f"advantage {advantage!r} of {name}: expected a finite number")
    drafts: list[list[_Token]] = [[]]
    spoken, first_turns = 0, [1]
    for index, turn in enumerate(trajectory.turns):
        where = f"turn {index} of {name}"
        if not turn.context_ids:
            raise ValueError(f"{where}: an empty context, expected at least one token before what was sampled")
        done = len(drafts[-1])
        if list(turn.context_ids[:done]) != [token_id for token_id, *_ in drafts[-1]]:
            drafts.append([])
            first_turns.append(spoken + 1)
            done = 0
        drafts[-1] += [(token_id, 0, 0.0, -1) for token_id in turn.context_ids[done:]]
        completion = turn.completion
        if len(completion.logprobs) != len(completion.token_ids):
            raise ValueError(f"{where}: {len(completion.logprobs)} logprobs for {len(completion.token_ids)} tokens")
        sampled = zip(completion.token_ids, completion.logprobs, _versions(completion, where), strict=True)
        drafts[-1] += [(token_id, 1, logprob, version) for token_id, logprob, version in sampled]
        spoken += bool(completion.token_ids)
    reward = None if isinstance(trajectory.reward, Failure) else trajectory.reward.value
    streams = () if isinstance(trajectory.reward, Failure) else trajectory.reward.streams
    for stream in streams:
        if len(stream.values) != trajectory.num_sampled:
            found = f"{len(stream.values)} values for {trajectory.num_sampled} sampled tokens"
            raise ValueError(f"stream {stream.name!r} of {name}: {found}")
    samples, start = [], 0
    for draft, first_turn in zip(drafts, first_turns, strict=True):
        end = start + sum(mask for _, mask, _, _ in draft)
        if end > start:
            own = tuple(replace(stream, values=stream.values[start:end]) for stream in streams)
            samples.append(replace(_finished(draft, advantage, reward, own), first_turn=first_turn))
        start = end
    return samples


def _finished(draft: list[_Token], advantage: float, reward: float | None, streams: tuple[TokenStream, ...]) -> Sample:
    """It ends at the last sampled token: nothing after it is predicted."""
    end = max(index for index, (_, mask, _, _) in enumerate(draft, start=1) if mask)
    token_ids, loss_mask, logprobs, versions = zip(*draft[:end], strict=True)
    return Sample(
        token_ids=token_ids,
        loss_mask=loss_mask,
        behavior_logprobs=logprobs,
        advantages=tuple(advantage if mask else 0.0 for mask in loss_mask),
        versions=versions,
        reward=reward,
        streams=streams,
    )


def pack(samples: Sequence[Sample], tokens_per_row: int, *, together: int = 1) -> list[list[Sample]]:
    """Rows of at most `tokens_per_row` tokens; a longer sample gets a row of its own.

    First-fit decreasing decides how many rows are needed; then each sample, longest first, goes to the emptiest row,
    so that rows are about equally long. Where that does not work out, the first-fit rows stand. Ties are broken by
    position: rows and the samples in them keep the order of `samples`. `together` consecutive samples (2: preference
    pairs) count as one: they stay side by side.
    """
    if tokens_per_row < 1:
        raise ValueError(f"tokens_per_row={tokens_per_row}: expected at least 1")
    units = _units(samples, together)
    lengths = [sum(len(sample.token_ids) for sample in unit) for unit in units]
    longest_first = sorted(range(len(units)), key=lambda index: (-lengths[index], index))

    first_fit: list[list[int]] = []
    loads: list[int] = []
    for index in longest_first:
        row = next((r for r, load in enumerate(loads) if load + lengths[index] <= tokens_per_row), len(loads))
        if row == len(loads):
            first_fit.append([])
            loads.append(0)
        first_fit[row].append(index)
        loads[row] += lengths[index]

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
    lengths = [len(sample.token_ids) for sample in samples]
    shares = [float(sum(sample.loss_mask)) if sample.share is None else sample.share for sample in samples]
    discounts = (1.0, *(stream.discount for stream in samples[0].streams))

    def flat(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([number for sample in samples for number in getattr(sample, name)], dtype=dtype)

    return Row(
        token_ids=flat("token_ids", torch.int64),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
        loss_mask=flat("loss_mask", torch.float32),
        behavior_logprobs=flat("behavior_logprobs", torch.float32),
        advantages=flat("advantages", torch.float32),
        versions=flat("versions", torch.int64),
        weights=torch.tensor(
            [sample.weight * mask for sample in samples for mask in sample.loss_mask], dtype=torch.float32
        ),
        first_turns=torch.tensor([sample.first_turn for sample in samples]),
        share=sum(shares),
        minibatch=minibatch,
        rewards=_rewards(samples),
        discounts=() if samples[0].reward is None else discounts,
    )


def make_batch(
    samples: Sequence[Sample], tokens_per_row: int, version: int, *, minibatches: int = 1, together: int = 1
) -> Batch:
    """Everything one update trains on. Raises ValueError when there is no sampled token: nothing could be averaged.

    Samples are dealt to `minibatches` in order, equally many to each (fewer minibatches where there are fewer samples),
    before they are packed: rows and ranks do not decide what an optimizer step sees.
    """
    num_loss_tokens = sum(sum(sample.loss_mask) for sample in samples)
    if num_loss_tokens == 0:
        raise ValueError(f"{len(samples)} samples without a token to train on: expected at least one")
    if minibatches < 1:
        raise ValueError(f"minibatches={minibatches}: expected at least 1")
    units = _units(samples, together)
    minibatches = min(minibatches, len(units))
    bounds = [len(units) * index // minibatches for index in range(minibatches + 1)]
    rows: list[Row] = []
    for index, (start, end) in enumerate(pairwise(bounds)):
        dealt = [sample for unit in units[start:end] for sample in unit]
        rows += [make_row(row, index) for row in pack(dealt, tokens_per_row, together=together)]
    return Batch(
        rows=tuple(rows),
        num_samples=len(samples),
        num_loss_tokens=num_loss_tokens,
        version=version,
        denominators=tuple(
            math.fsum(row.share for row in rows if row.minibatch == index) for index in range(minibatches)
        ),
    )


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
        for mine, dealt in zip(ranks, _deal(rows, world_size), strict=True):
            mine += dealt
    return [replace(batch, rows=tuple(rows)) for rows in ranks]


def _deal(rows: Sequence[Row], world_size: int) -> list[list[Row]]:
    """The rows of one minibatch to ranks, equally many to each."""
    rows_per_rank = math.ceil(len(rows) / world_size)
    costs = [row_cost(row) for row in rows]
    ranks: list[list[Row]] = [[] for _ in range(world_size)]
    loads = [0.0] * world_size
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        rank = min((r for r in range(world_size) if len(ranks[r]) < rows_per_rank), key=lambda r: (loads[r], r))
        ranks[rank].append(rows[index])
        loads[rank] += costs[index]
    return [dealt + [padding_row(rows[0])] * (rows_per_rank - len(dealt)) for dealt in ranks]


def row_cost(row: Row) -> float:
    """What a row costs to train, in tokens: L + L^2 / QUADRATIC_LENGTH summed over its samples."""
    lengths = row.cu_seqlens.diff().tolist()
    return float(sum(length + length * length / QUADRATIC_LENGTH for length in lengths))


def _spread(
    longest_first: Sequence[int], lengths: Sequence[int], num_rows: int, capacity: int
) -> list[list[int]] | None:
    """Longest first, always to the emptiest of `num_rows` rows; None when something does not fit."""
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    loads = [0] * num_rows
    for index in longest_first:
        row = min(range(num_rows), key=lambda r: (loads[r], r))
        if rows[row] and loads[row] + lengths[index] > capacity:
            return None
        rows[row].append(index)
        loads[row] += lengths[index]
    return rows


def _versions(completion: Completion, where: str) -> list[int]:
    versions: list[int] = []
    for span in completion.spans:
        if span.start != len(versions) or span.end < span.start:
            raise ValueError(f"{where}: version span {span.start}:{span.end}, expected it to start at {len(versions)}")
        versions.extend([span.version] * (span.end - span.start))
    if len(versions) != len(completion.token_ids):
        raise ValueError(f"{where}: version spans cover {len(versions)} of {len(completion.token_ids)} tokens")
    return versions


def _check(sample: Sample, index: int) -> None:
    length = len(sample.token_ids)
    if length == 0:
        raise ValueError(f"sample {index} of the row is empty: expected at least one token")
    for name in ("loss_mask", "behavior_logprobs", "advantages", "versions"):
        if len(getattr(sample, name)) != length:
            raise ValueError(f"sample {index} of the row: {len(getattr(sample, name))} {name} for {length} tokens")
    if sample.loss_mask[0] != 0:
        raise ValueError(f"sample {index} of the row: its first token is in the loss, but nothing predicts it")


def padding_row(like: Row) -> Row:
    """The shortest possible row, with weight 0, in the minibatch of `like` and with as many reward streams."""
    nothing = (0.0,) * _PADDING_TOKENS
    sample = Sample(
        token_ids=(0,) * _PADDING_TOKENS,
        loss_mask=(0,) * _PADDING_TOKENS,
        behavior_logprobs=nothing,
        advantages=nothing,
        versions=(-1,) * _PADDING_TOKENS,
        share=0.0,
    )
    rewards = None if like.rewards is None else torch.zeros(like.rewards.shape[0], _PADDING_TOKENS)
    return replace(make_row([sample], like.minibatch), rewards=rewards, discounts=like.discounts)


def _units(samples: Sequence[Sample], together: int) -> list[Sequence[Sample]]:
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
        sampled = [index for index, mask in enumerate(sample.loss_mask) if mask]
        rewards = torch.zeros(1 + len(sample.streams), len(sample.token_ids))
        if sampled and sample.reward is not None:
            rewards[0, sampled[-1]] = sample.reward
        for number, stream in enumerate(sample.streams, 1):
            rewards[number, sampled] = torch.tensor(stream.values)
        columns.append(rewards)
    return torch.cat(columns, dim=1)
