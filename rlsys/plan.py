"""The plan of a batch, for every kind of stage: which samples share a micro-batch, and which rank trains it.

The driver plans from the samples' lengths alone; each rank fetches what its micro-batches need and builds them
(`rlsys.batch.build_batch`). So no token of a rollout passes through the driver. Deterministic: the same input gives the
same plan.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from rlsys.samples import SampleRef
from rlsys.types import Sample

# Attention's cost grows with L^2, everything else with L; for common sizes (hidden 1000 to 1500) they meet near here.
QUADRATIC_LENGTH = 8192

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchPlan:
    samples: tuple[SampleRef, ...]  # none: padding, a micro-batch of zero loss
    minibatch: int  # which optimizer step of an epoch it belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Everything one update trains on, or one rank's part of it, without tokens."""

    micro_batches: tuple[MicroBatchPlan, ...]
    version: int  # the version being trained; lag is counted up to it
    denominators: tuple[float, ...]  # of each minibatch: the shares of all its samples, over all ranks
    max_token_lag: int | None = None  # older tokens leave the loss; None: none do
    discounts: tuple[float, ...] = ()  # [M] of the reward streams, of the value first; none where nothing was rewarded
    shown: frozenset[int] = frozenset()  # by group_id: those whose advantages of single tokens the report has to hold
    sources: Mapping[int, Any] = field(repr=False)  # by group_id: a `Group` or a reference to it, or a `Sample` itself

    @property
    def num_tokens(self) -> int:
        return sum(ref.num_tokens for micro_batch in self.micro_batches for ref in micro_batch.samples)

    @property
    def num_loss_tokens(self) -> int:
        return sum(ref.num_loss_tokens for micro_batch in self.micro_batches for ref in micro_batch.samples)


def plan_batch(
    samples: Sequence[SampleRef],
    sources: Mapping[int, Any],
    tokens_per_row: int,
    version: int,
    *,
    minibatches: int = 1,
    samples_per_unit: int = 1,
    in_order: bool = False,
    max_token_lag: int | None = None,
    discounts: tuple[float, ...] = (),
) -> BatchPlan:
    """Everything one update trains on. Raises ValueError where no token is in the loss: nothing could be averaged.

    Samples are dealt to `minibatches` in order, equally many to each (fewer minibatches where there are fewer samples),
    before they are packed: micro-batches and ranks do not decide what an optimizer step sees.
    """
    if not any(ref.num_loss_tokens for ref in samples):
        raise ValueError(f"{len(samples)} samples without a token to train on: expected at least one")
    if minibatches < 1:
        raise ValueError(f"minibatches={minibatches}: expected at least 1")
    num_units = len(_sample_units(samples, samples_per_unit))
    minibatches = min(minibatches, num_units)
    bounds = [num_units * index // minibatches * samples_per_unit for index in range(minibatches + 1)]
    parts = [samples[start:end] for start, end in pairwise(bounds)]
    packed = [pack(part, tokens_per_row, samples_per_unit=samples_per_unit, in_order=in_order) for part in parts]
    return BatchPlan(
        micro_batches=tuple(
            MicroBatchPlan(samples=tuple(row), minibatch=index) for index, rows in enumerate(packed) for row in rows
        ),
        version=version,
        denominators=tuple(math.fsum(map(total_share, rows)) for rows in packed),
        max_token_lag=max_token_lag,
        discounts=discounts,
        sources=sources,
    )


def plan_samples(samples: Sequence[Sample], tokens_per_row: int, version: int, **how: Any) -> BatchPlan:
    """The plan for samples that are at hand, such as demonstrations; `how` is as in `plan_batch`."""
    refs = [
        SampleRef(
            group_id=place,
            num_tokens=sample.num_tokens,
            num_loss_tokens=sample.num_loss_tokens,
            weight=sample.weight,
            share=sample.share,
        )
        for place, sample in enumerate(samples)
    ]
    discounts = samples[0].discounts if samples else ()
    return plan_batch(refs, dict(enumerate(samples)), tokens_per_row, version, discounts=discounts, **how)


def shard_plan(plan: BatchPlan, world_size: int) -> list[BatchPlan]:
    """One part per rank, each with the same number of micro-batches of every minibatch and about the same cost, and
    with the sources that it needs.

    A rank that comes out short gets padding, so that all ranks do the same collectives. Denominators stay those of the
    whole batch. Each rank has the most expensive micro-batch of a minibatch first, so that those that run at the same
    time on different ranks are alike.
    """
    if world_size < 1:
        raise ValueError(f"world_size={world_size}: expected at least 1")
    if not plan.micro_batches:
        raise ValueError("a batch without rows: expected at least one")
    ranks: list[list[MicroBatchPlan]] = [[] for _ in range(world_size)]
    for minibatch in range(len(plan.denominators)):
        parts = [part for part in plan.micro_batches if part.minibatch == minibatch]
        dealt = deal([row_cost([ref.num_tokens for ref in part.samples]) for part in parts], world_size)
        padding = MicroBatchPlan(samples=(), minibatch=minibatch)
        for rank, indexes in zip(ranks, dealt, strict=True):
            rank += [parts[index] for index in indexes] + [padding] * (max(map(len, dealt)) - len(indexes))
    source_ids = [sorted({ref.group_id for part in rank for ref in part.samples}) for rank in ranks]
    return [
        replace(plan, micro_batches=tuple(rank), sources={group_id: plan.sources[group_id] for group_id in group_ids})
        for rank, group_ids in zip(ranks, source_ids, strict=True)
    ]


def pack(
    samples: Sequence[SampleRef], tokens_per_row: int, *, samples_per_unit: int = 1, in_order: bool = False
) -> list[list[SampleRef]]:
    """Rows of at most `tokens_per_row` tokens, about equally long; a longer sample gets its own row. Elsewhere
    `use_dynamic_bsz` with `ppo_max_token_len_per_gpu`: rows are always made by length here.

    First-fit decreasing decides how many rows are needed; then each sample, longest first, goes to the emptiest row.
    Where that does not work out, the first-fit rows stand. in_order: rows are cut from the samples as they come, a few
    more of them perhaps; siblings then lie side by side, and a learner computes their prompt once (learners.attention).
    Ties are broken by position: rows and the samples in them keep the order of `samples`. `samples_per_unit`
    consecutive samples (2: preference pairs) count as one: they stay side by side.
    """
    if tokens_per_row < 1:
        raise ValueError(f"tokens_per_row={tokens_per_row}: expected at least 1")
    units = _sample_units(samples, samples_per_unit)
    lengths = [sum(sample.num_tokens for sample in unit) for unit in units]
    if in_order:
        rows = _pack_in_order(lengths, tokens_per_row)
    else:
        longest_first = sorted(range(len(units)), key=lambda index: (-lengths[index], index))
        first_fit = _first_fit(longest_first, lengths, tokens_per_row)
        rows = _balance_rows(longest_first, lengths, len(first_fit), tokens_per_row) or first_fit
    return [[sample for index in row for sample in units[index]] for row in sorted(sorted(row) for row in rows)]


def total_share(row: Sequence[Sample | SampleRef]) -> float:
    """What a row's samples add to the denominator of its minibatch."""
    return sum(float(sample.num_loss_tokens) if sample.share is None else sample.share for sample in row)


def consecutive(items: Sequence[T], size: Callable[[T], int], limit: int) -> list[list[T]]:
    """The items in order, as many to a part as fit within `limit`; a larger one is a part by itself."""
    parts: list[list[T]] = []
    filled = 0
    for item in items:
        if not parts or filled + size(item) > limit:
            parts.append([])
            filled = 0
        parts[-1].append(item)
        filled += size(item)
    return parts


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


def _sample_units(samples: Sequence[SampleRef], samples_per_unit: int) -> list[Sequence[SampleRef]]:
    if samples_per_unit < 1 or len(samples) % samples_per_unit:
        raise ValueError(f"{len(samples)} samples in units of samples_per_unit={samples_per_unit}: expected a multiple")
    return [samples[start : start + samples_per_unit] for start in range(0, len(samples), samples_per_unit)]


def _pack_in_order(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Neighbours in as few rows as that takes, the longest of them as short as it can be."""

    def rows(limit: int) -> list[list[int]]:
        return consecutive(range(len(lengths)), lengths.__getitem__, limit)

    fewest = len(rows(capacity))  # which at last the whole capacity gives
    return rows(bisect_left(range(capacity), True, key=lambda limit: len(rows(limit)) <= fewest))


def _balance_rows(
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
