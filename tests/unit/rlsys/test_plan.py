import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import MicroBatch, build_batch
from rlsys.losses import nll_loss
from rlsys.plan import BatchPlan, deal, pack, plan_batch, plan_samples, row_cost, shard_plan
from rlsys.samples import SampleRef
from rlsys.types import Sample
from tests.makers import made
from tests.makers.made import make_batch, make_shards


def sample(length: int, start: int = 0) -> Sample:
    """A prompt of one token, then sampled ones. Token ids count up from `start`."""
    return made.sample((0,) + (1,) * (length - 1), token_ids=range(start, start + length), advantages=0.5)


def samples_of(lengths: list[int]) -> list[Sample]:
    return [sample(length, start=1000 * index) for index, length in enumerate(lengths)]


def refs_of(lengths: list[int]) -> list[SampleRef]:
    return [SampleRef(group_id=at, num_tokens=length, num_loss_tokens=length - 1) for at, length in enumerate(lengths)]


def packed(lengths: list[int], tokens_per_row: int, **how: Any) -> list[list[int]]:
    """The samples' lengths, by row."""
    return [[ref.num_tokens for ref in row] for row in pack(refs_of(lengths), tokens_per_row, **how)]


lengths_of_samples = st.lists(st.integers(1, 40), max_size=30)


@settings(deadline=None)  # a busy machine is no counterexample
@given(lengths_of_samples, st.integers(1, 50), st.booleans())
def test_packing_keeps_every_sample_once_and_rows_within_their_budget(
    lengths: list[int], budget: int, in_order: bool
) -> None:
    samples = refs_of(lengths)
    rows = pack(samples, budget, in_order=in_order)
    assert Counter(ref for row in rows for ref in row) == Counter(samples)
    for row in rows:
        assert len(row) == 1 or sum(ref.num_tokens for ref in row) <= budget
        assert row == sorted(row, key=lambda ref: ref.group_id)
    assert rows == pack(list(samples), budget, in_order=in_order)
    assert not in_order or [ref for row in rows for ref in row] == samples
    assert len(rows) <= len(samples)


def test_in_order_neighbours_stay_together_and_rows_are_alike() -> None:
    assert packed([4, 4, 4, 3, 3, 3, 1], 15, in_order=True) == [[4, 4, 4], [3, 3, 3, 1]]
    assert packed([6, 6, 4, 4, 30], 10, in_order=True) == [[6], [6], [4, 4], [30]]  # by first fit, three rows


def test_packing_needs_few_rows_and_balances_them() -> None:
    assert packed([6, 4, 4, 2, 3, 1], 10) == [[6, 3, 1], [4, 4, 2]]
    # first fit alone would give 8+2 and 2
    assert packed([8, 2, 2], 10) == [[8], [2, 2]]


def test_a_longer_sample_has_a_row_of_its_own() -> None:
    assert packed([3, 30, 3], 10) == [[3, 3], [30]]


def test_pairs_stay_side_by_side() -> None:
    assert packed([3, 4, 6, 5, 2, 2], 8, samples_per_unit=2) == [[3, 4], [6, 5], [2, 2]]
    assert packed([3, 4, 6, 5, 2, 2], 11, samples_per_unit=2) == [[3, 4, 2, 2], [6, 5]]
    for lengths in ([3, 4, 5], [3]):
        with pytest.raises(ValueError, match=f"{len(lengths)} samples in units of samples_per_unit=2"):
            plan_batch(refs_of(lengths), {}, 8, 0, samples_per_unit=2)


def test_first_fit_stands_where_balancing_does_not_work_out() -> None:
    # emptiest first: 6 | 4, 6 | 4+3, 6+3 | 4+3, 6+3 | 4+3+2, and the last 2 fits nowhere
    assert packed([6, 4, 3, 3, 2, 2], 10) == [[6, 4], [3, 3, 2, 2]]


def test_a_batch_counts_its_loss_tokens_once_for_all_rows() -> None:
    plan = plan_samples(samples_of([5, 4, 3]), 6, version=9)
    assert (plan.num_loss_tokens, plan.num_tokens, plan.version, plan.denominators) == (9, 12, 9, (9.0,))


@pytest.mark.parametrize("samples", [[], [sample(1)]])
def test_a_batch_without_loss_tokens_is_refused(samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="without a token to train on"):
        make_batch(samples, 10, version=0)


def test_a_batch_needs_a_positive_budget() -> None:
    with pytest.raises(ValueError, match="tokens_per_row=0"):
        make_batch([sample(2)], 0, version=0)


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(st.integers(2, 30), min_size=1, max_size=20), st.integers(2, 40), st.integers(1, 5), st.integers(1, 6))
def test_minibatches_do_not_depend_on_rows_or_ranks(
    lengths: list[int], budget: int, world_size: int, minibatches: int
) -> None:
    samples = samples_of(lengths)
    batch = make_batch(samples, budget, version=1, minibatches=minibatches)
    count = min(minibatches, len(samples))
    assert len(batch.denominators) == count
    parts = make_shards(samples, budget, 1, world_size, minibatches=minibatches)
    dealt = []
    for index in range(count):
        rows = [[row for row in part.rows if row.minibatch == index] for part in parts]
        assert len({len(mine) for mine in rows}) == 1  # of every minibatch as many on each rank
        real = [row for mine in rows for row in mine if row.loss_mask.any()]
        assert batch.denominators[index] == sum(row.share for row in real)
        dealt.append({int(start) for row in real for start in row.token_ids[row.cu_seqlens[:-1].long()] // 1000})
    assert [len(part) for part in dealt] == [
        len(samples) * (index + 1) // count - len(samples) * index // count for index in range(count)
    ]
    assert [start for part in dealt for start in sorted(part)] == list(range(len(samples)))


def test_row_cost_grows_with_the_square_of_each_sample() -> None:
    assert row_cost([8192]) == 2 * 8192
    assert row_cost([4096, 4096]) == 1.5 * 8192


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(st.integers(2, 30), min_size=1, max_size=20), st.integers(2, 40), st.integers(1, 5))
def test_every_rank_gets_as_many_rows_and_no_row_is_lost(lengths: list[int], budget: int, world_size: int) -> None:
    plan = plan_samples(samples_of(lengths), budget, version=1)
    parts = shard_plan(plan, world_size)
    assert len(parts) == world_size
    assert {len(part.micro_batches) for part in parts} == {math.ceil(len(plan.micro_batches) / world_size)}
    assert all(part.denominators == plan.denominators for part in parts)
    batches = [batch for part in parts for batch in part.micro_batches if batch.samples]
    assert sorted(map(id, batches)) == sorted(map(id, plan.micro_batches))
    rows = [row for part in parts for row in build_batch(part, part.sources).rows]
    assert len([row for row in rows if row.loss_mask.any()]) == len(batches)
    for row in (row for row in rows if not row.loss_mask.any()):
        assert row.num_tokens == 2 and row.cu_seqlens.tolist() == [0, 2] and row.versions.tolist() == [-1, -1]


def test_ranks_get_about_equal_work_dearest_row_first() -> None:
    plan = plan_samples(samples_of([10, 20, 30, 40]), 1, version=1)  # a row each
    parts = shard_plan(plan, 2)
    assert [[ref.num_tokens for batch in part.micro_batches for ref in batch.samples] for part in parts] == [
        [40, 10],
        [30, 20],
    ]
    assert [set(part.sources) for part in parts] == [{0, 3}, {1, 2}]


def test_a_rank_with_a_dear_row_gets_as_many_rows_as_the_others() -> None:
    assert deal([10, 1, 1, 1], 2) == [[0, 3], [1, 2]]
    assert deal([1, 1, 9], 2) == [[2], [0, 1]]
    assert deal([], 2) == [[], []]


def test_splitting_refuses_what_it_cannot_split() -> None:
    with pytest.raises(ValueError, match="world_size=0"):
        shard_plan(plan_samples([sample(2)], 4, version=0), 0)
    with pytest.raises(ValueError, match="without rows"):
        shard_plan(BatchPlan(micro_batches=(), version=0, denominators=(1.0,), sources={}), 1)


def row_loss(row: MicroBatch, weight: torch.Tensor, denominator: float) -> torch.Tensor:
    """A stand-in for a model: a token's log-probability depends on it and on its position in its sample."""
    logp = weight[row.token_ids % 7] * (1 + row.position_ids)
    return nll_loss(logp, row.loss_mask, denominator=denominator).loss


@settings(deadline=None)  # a busy machine is no counterexample
@given(
    st.lists(st.integers(2, 30), min_size=1, max_size=12),
    st.integers(2, 60),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_no_way_of_making_rows_changes_loss_or_gradient(lengths, budget, world_size, random) -> None:
    samples = samples_of(lengths)
    results = []
    shuffled = random.sample(samples, len(samples))
    for given_samples, tokens, ranks in ((samples, 10**6, 1), (shuffled, budget, world_size)):
        weight = torch.linspace(0.1, 0.7, 7, dtype=torch.float64, requires_grad=True)
        parts = make_shards(given_samples, tokens, 1, ranks)
        loss = sum(row_loss(row, weight, part.denominators[0]) for part in parts for row in part.rows)
        loss.backward()
        results.append((loss.detach(), weight.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
