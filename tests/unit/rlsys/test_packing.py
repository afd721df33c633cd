import math
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import Batch, Row
from rlsys.losses import nll_loss
from rlsys.packing import make_batch, make_row, pack, row_cost, sample_trajectory, split_rows
from rlsys.types import Reward, Sample, TokenStream, Trajectory, Turn, VersionSpan
from tests import made
from tests.made import completion, trajectory, turn


def sample(length: int, start: int = 0) -> Sample:
    """A prompt of one token, then sampled ones. Token ids count up from `start`."""
    return made.sample((0,) + (1,) * (length - 1), token_ids=range(start, start + length), advantages=0.5)


def samples_of(lengths: list[int]) -> list[Sample]:
    return [sample(length, start=1000 * index) for index, length in enumerate(lengths)]


def test_turns_that_extend_each_other_become_one_token_exact_sample() -> None:
    first, last = turn((1, 2), (3, 4), version=(6, 7)), turn((1, 2, 3, 4, 5), (6,), version=7, logprobs=(-9.0,))
    (merged,) = sample_trajectory(trajectory(first, last), 0.5)
    assert merged.token_ids.tolist() == [1, 2, 3, 4, 5, 6] and merged.token_ids.dtype == np.int32
    assert merged.loss_mask.tolist() == [0, 0, 1, 1, 0, 1] and merged.loss_mask.dtype == np.bool_
    assert merged.behavior_logprobs.tolist() == [0.0, 0.0, -1.0, -2.0, 0.0, -9.0]
    assert merged.advantages.tolist() == [0.0, 0.0, 0.5, 0.5, 0.0, 0.5]
    assert merged.versions.tolist() == [-1, -1, 6, 7, -1, 7]
    assert (merged.reward, merged.weight, merged.share, merged.first_turn) == (1.0, 1.0, None, 1)


def test_a_turn_holds_what_it_adds_and_arrays_leave_a_pickle_as_buffers() -> None:
    turns = trajectory(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 5), (6,)), turn((1, 2, 3), (7,))).turns
    assert [(each.added_ids.tolist(), each.starts_sample) for each in turns] == [
        ([1, 2], True),
        ([5], False),
        ([1, 2, 3], True),
    ]
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(turns[0], protocol=5, buffer_callback=buffers.append)
    assert [len(each.raw()) for each in buffers] == [8, 8, 8]  # 4 bytes a token: ids seen, ids sampled, their logprobs


def rewarded(played: Trajectory, values: tuple[float, ...]) -> Trajectory:
    stream = TokenStream(name="repetition", values=values, discount=0.99)
    return replace(played, reward=Reward(value=2.0, parts={"correct": 2.0}, streams=(stream,)))


def test_each_sample_has_the_value_on_its_last_sampled_token_and_its_part_of_the_streams() -> None:
    played = trajectory(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 5), (6,)), turn((9,), (7, 8)), sibling=2)
    first, second = sample_trajectory(rewarded(played, (0.0, -0.1, -0.2, -0.3, 0.0)), 0.5)
    row = make_row([first, second])
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 9, 7, 8]
    torch.testing.assert_close(
        row.rewards,
        torch.tensor([[0, 0, 0, 0, 0, 2.0, 0, 0, 2.0], [0, 0, 0, -0.1, 0, -0.2, 0, -0.3, 0]]),
    )
    assert row.discounts == (1.0, 0.99)
    (alone,) = sample_trajectory(trajectory(turn((1,), (2,))), 1.0)
    assert make_row([alone]).rewards.tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="different reward streams"):
        make_row([first, alone])
    with pytest.raises(ValueError, match=r"stream 'repetition' of trajectory 2 .* 2 values for 5 sampled tokens"):
        sample_trajectory(rewarded(played, (0.0, 0.0)), 0.5)


def test_a_demonstration_has_no_rewards() -> None:
    assert make_row([sample(3)]).rewards is None and make_row([sample(3)]).discounts == ()


@pytest.mark.parametrize("context", [(1, 2, 9, 4, 5), (1, 2, 3), (8,)])
def test_a_rewritten_context_starts_a_new_sample(context: tuple[int, ...]) -> None:
    first, second = sample_trajectory(trajectory(turn((1, 2), (3, 4)), turn(context, (6,))), -1.0)
    assert first.token_ids.tolist() == [1, 2, 3, 4] and first.loss_mask.tolist() == [0, 0, 1, 1]
    assert second.token_ids.tolist() == [*context, 6] and second.loss_mask.tolist() == [0] * len(context) + [1]


def test_nothing_sampled_gives_no_sample_and_no_trailing_tokens() -> None:
    assert sample_trajectory(trajectory(), 1.0) == []
    assert sample_trajectory(trajectory(turn((1, 2), ())), 1.0) == []
    (only,) = sample_trajectory(trajectory(turn((1,), (2,)), turn((1, 2, 3, 4), ())), 1.0)
    assert only.token_ids.tolist() == [1, 2]


@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_failed_sibling_cannot_be_trained(advantage: float) -> None:
    with pytest.raises(ValueError, match="trajectory 2 of task 't:1'"):
        sample_trajectory(trajectory(turn((1,), (2,)), sibling=2), advantage)


WHOLE = completion((2, 3))


@pytest.mark.parametrize(
    ("context", "sampled", "message"),
    [
        ((), WHOLE, "turn 0 .* empty context"),
        ((1,), replace(WHOLE, spans=(VersionSpan(version=1, start=0, end=1),)), "cover 1 of 2 tokens"),
        ((1,), replace(WHOLE, spans=(VersionSpan(version=1, start=1, end=2),)), "expected it to start at 0"),
    ],
)
def test_a_turn_that_breaks_the_contract_is_named(context, sampled, message) -> None:
    with pytest.raises(ValueError, match=message):
        spoken = Turn(added_ids=made.ints(context), starts_sample=True, completion=sampled, reply=None)
        sample_trajectory(trajectory(spoken), 1.0)


def test_missing_logprobs_are_named() -> None:
    with pytest.raises(ValueError, match="1 logprobs for 2 tokens"):
        sample_trajectory(trajectory(turn((1,), (2, 3), logprobs=(-1.0,))), 1.0)


turns_of_an_episode = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 4)), max_size=6)


@settings(deadline=None)  # a busy machine is no counterexample
@given(turns_of_an_episode)
def test_every_sampled_token_is_in_exactly_one_sample(shape: list[tuple[bool, int, int]]) -> None:
    turns, history, fresh = [], [], iter(range(1, 1000))
    for rewritten, num_context, num_sampled in shape:
        said = [next(fresh) for _ in range(num_context)]
        context = [next(fresh), *said] if rewritten or not history else [*history, *said]
        token_ids = [next(fresh) for _ in range(num_sampled)]
        turns.append(turn(context, token_ids))
        history = context + token_ids
    samples = sample_trajectory(trajectory(*turns), 0.5)
    trained = [token for s in samples for token, mask in zip(s.token_ids, s.loss_mask, strict=True) if mask]
    assert trained == [token for each in turns for token in each.completion.token_ids]
    assert all(s.loss_mask[0] == 0 and s.loss_mask[-1] == 1 for s in samples)


lengths_of_samples = st.lists(st.integers(1, 40), max_size=30)


@settings(deadline=None)  # a busy machine is no counterexample
@given(lengths_of_samples, st.integers(1, 50), st.booleans())
def test_packing_keeps_every_sample_once_and_rows_within_their_budget(
    lengths: list[int], budget: int, in_order: bool
) -> None:
    samples = samples_of(lengths)
    rows = pack(samples, budget, in_order=in_order)
    assert Counter(s.token_ids[0] for row in rows for s in row) == Counter(s.token_ids[0] for s in samples)
    for row in rows:
        assert len(row) == 1 or sum(len(s.token_ids) for s in row) <= budget
        assert row == sorted(row, key=lambda s: s.token_ids[0])
    assert rows == pack(list(samples), budget, in_order=in_order)
    assert not in_order or [s for row in rows for s in row] == samples
    assert len(rows) <= len(samples)


def test_in_order_neighbours_stay_together_and_rows_are_alike() -> None:
    rows = pack(samples_of([4, 4, 4, 3, 3, 3, 1]), 15, in_order=True)
    assert [[len(s.token_ids) for s in row] for row in rows] == [[4, 4, 4], [3, 3, 3, 1]]
    rows = pack(samples_of([6, 6, 4, 4, 30]), 10, in_order=True)  # by first fit, three rows
    assert [[len(s.token_ids) for s in row] for row in rows] == [[6], [6], [4, 4], [30]]


def test_packing_needs_few_rows_and_balances_them() -> None:
    assert [[len(s.token_ids) for s in row] for row in pack(samples_of([6, 4, 4, 2, 3, 1]), 10)] == [
        [6, 3, 1],
        [4, 4, 2],
    ]
    # first fit alone would give 8+2 and 2
    assert [sum(len(s.token_ids) for s in row) for row in pack(samples_of([8, 2, 2]), 10)] == [8, 4]


def test_a_longer_sample_has_a_row_of_its_own() -> None:
    assert [[len(s.token_ids) for s in row] for row in pack(samples_of([3, 30, 3]), 10)] == [[3, 3], [30]]


def test_pairs_stay_side_by_side() -> None:
    rows = pack(samples_of([3, 4, 6, 5, 2, 2]), 8, together=2)
    assert [[len(s.token_ids) for s in row] for row in rows] == [[3, 4], [6, 5], [2, 2]]
    rows = pack(samples_of([3, 4, 6, 5, 2, 2]), 11, together=2)
    assert [[len(s.token_ids) for s in row] for row in rows] == [[3, 4, 2, 2], [6, 5]]
    with pytest.raises(ValueError, match="3 samples in units of together=2"):
        pack(samples_of([3, 4, 5]), 8, together=2)


def test_first_fit_stands_where_balancing_does_not_work_out() -> None:
    # emptiest first: 6 | 4, 6 | 4+3, 6+3 | 4+3, 6+3 | 4+3+2, and the last 2 fits nowhere
    rows = [[len(s.token_ids) for s in row] for row in pack(samples_of([6, 4, 3, 3, 2, 2]), 10)]
    assert rows == [[6, 4], [3, 3, 2, 2]]


def test_a_row_restarts_positions_at_every_sample() -> None:
    row = make_row([sample(3), sample(2, start=10)])
    assert row.token_ids.tolist() == [0, 1, 2, 10, 11]
    assert row.position_ids.tolist() == [0, 1, 2, 0, 1]
    assert row.cu_seqlens.tolist() == [0, 3, 5]
    assert row.loss_mask.tolist() == [0, 1, 1, 0, 1]
    assert row.versions.tolist() == [-1, 3, 3, -1, 3]
    dtypes = [
        row.token_ids.dtype,
        row.position_ids.dtype,
        row.cu_seqlens.dtype,
        row.loss_mask.dtype,
        row.versions.dtype,
    ]
    assert dtypes == [torch.int64, torch.int64, torch.int32, torch.float32, torch.int64]
    assert row.behavior_logprobs.dtype == row.advantages.dtype == torch.float32


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        (
            [sample(2), made.sample(())],
            "sample 1 .* empty",
        ),
        ([replace(sample(2), versions=(-1,))], "1 versions for 2 tokens"),
        ([replace(sample(2), loss_mask=(1, 1))], "first token is in the loss"),
    ],
)
def test_a_row_of_bad_samples_is_refused(samples: list[Sample], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_row(samples)


def test_a_batch_counts_its_loss_tokens_once_for_all_rows() -> None:
    batch = make_batch(samples_of([5, 4, 3]), 6, version=9)
    assert (batch.num_samples, batch.num_loss_tokens, batch.num_tokens, batch.version) == (3, 9, 12, 9)


@pytest.mark.parametrize("samples", [[], [sample(1)]])
def test_a_batch_without_loss_tokens_is_refused(samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="without a token to train on"):
        make_batch(samples, 10, version=0)


def test_a_batch_needs_a_positive_budget() -> None:
    with pytest.raises(ValueError, match="tokens_per_row=0"):
        make_batch([sample(2)], 0, version=0)


def test_a_row_weighs_its_tokens_and_adds_up_its_shares() -> None:
    row = make_row([replace(sample(3), weight=0.5, share=0.25), sample(2)])
    assert row.weights.tolist() == [0, 0.5, 0.5, 0, 1] and row.weights.dtype == torch.float32
    assert row.share == 1.25  # a sample that says nothing counts its loss tokens
    assert make_batch([sample(5), sample(3)], 100, version=0).denominators == (6.0,)


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(st.integers(2, 30), min_size=1, max_size=20), st.integers(2, 40), st.integers(1, 5), st.integers(1, 6))
def test_minibatches_do_not_depend_on_rows_or_ranks(
    lengths: list[int], budget: int, world_size: int, minibatches: int
) -> None:
    samples = samples_of(lengths)
    batch = make_batch(samples, budget, version=1, minibatches=minibatches)
    found = min(minibatches, len(samples))
    assert len(batch.denominators) == found
    parts = split_rows(batch, world_size)
    dealt = []
    for index in range(found):
        rows = [[row for row in part.rows if row.minibatch == index] for part in parts]
        assert len({len(mine) for mine in rows}) == 1  # of every minibatch as many on each rank
        real = [row for mine in rows for row in mine if row.loss_mask.any()]
        assert batch.denominators[index] == sum(row.share for row in real)
        dealt.append({int(start) for row in real for start in row.token_ids[row.cu_seqlens[:-1].long()] // 1000})
    assert [len(part) for part in dealt] == [
        len(samples) * (index + 1) // found - len(samples) * index // found for index in range(found)
    ]
    assert [start for part in dealt for start in sorted(part)] == list(range(len(samples)))


def test_row_cost_grows_with_the_square_of_each_sample() -> None:
    assert row_cost([8192]) == 2 * 8192
    assert row_cost([4096, 4096]) == 1.5 * 8192


@settings(deadline=None)  # a busy machine is no counterexample
@given(st.lists(st.integers(2, 30), min_size=1, max_size=20), st.integers(2, 40), st.integers(1, 5))
def test_every_rank_gets_as_many_rows_and_no_row_is_lost(lengths: list[int], budget: int, world_size: int) -> None:
    batch = make_batch(samples_of(lengths), budget, version=1)
    parts = split_rows(batch, world_size)
    assert len(parts) == world_size
    assert {len(part.rows) for part in parts} == {math.ceil(len(batch.rows) / world_size)}
    assert all(part.num_loss_tokens == batch.num_loss_tokens and part.num_samples == len(lengths) for part in parts)
    kept = [row for part in parts for row in part.rows if row.loss_mask.any()]
    assert sorted(map(id, kept)) == sorted(map(id, batch.rows))
    for row in (row for part in parts for row in part.rows if not row.loss_mask.any()):
        assert row.num_tokens == 2 and row.cu_seqlens.tolist() == [0, 2] and row.versions.tolist() == [-1, -1]


def test_ranks_get_about_equal_work_dearest_row_first() -> None:
    batch = make_batch(samples_of([10, 20, 30, 40]), 40, version=1)
    rows = tuple(make_row([s]) for s in samples_of([10, 20, 30, 40]))
    batch = replace(batch, rows=rows)
    assert [[row.num_tokens for row in part.rows] for part in split_rows(batch, 2)] == [[40, 10], [30, 20]]


def test_splitting_refuses_what_it_cannot_split() -> None:
    with pytest.raises(ValueError, match="world_size=0"):
        split_rows(make_batch([sample(2)], 4, version=0), 0)
    with pytest.raises(ValueError, match="without rows"):
        split_rows(Batch(rows=(), num_samples=0, num_loss_tokens=1, version=0, denominators=(1.0,)), 1)


def row_loss(row: Row, weight: torch.Tensor, denominator: float) -> torch.Tensor:
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
        parts = split_rows(make_batch(given_samples, tokens, version=1), ranks)
        loss = sum(row_loss(row, weight, part.num_loss_tokens) for part in parts for row in part.rows)
        loss.backward()
        results.append((loss.detach(), weight.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
