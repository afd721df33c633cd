"""The papers' reductions by hand, the example of verl issue 593, and trajectories of several samples."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.reductions import Reduction, weigh
from rlsys.types import Sample
from tests.makers import made
from tests.makers.made import make_batch

REDUCTIONS: tuple[Reduction, ...] = ("token_mean", "sequence_mean", "group_total", "constant", "sequence_sum")


def sample(*losses: float) -> Sample:
    """A prompt token and one sampled token per loss. The loss rides in the advantages."""
    count = len(losses)
    return made.sample((0,) + (1,) * count, advantages=losses)


def reduced(groups: list[list[list[Sample]]], reduction: Reduction, tokens_per_row: int = 100) -> float:
    """What a batch packed in rows makes of the token losses."""
    batch = make_batch(weigh(groups, reduction, length=10), tokens_per_row, version=0)
    (denominator,) = batch.denominators
    return sum(float((row.advantages * row.weights).sum()) for row in batch.rows) / denominator


# Five tokens of 2 and one of 10: two answers to one question.
VERL_593 = [[[sample(2, 2, 2, 2, 2)], [sample(10)]]]


def test_the_mean_over_tokens_is_not_the_mean_over_sequences() -> None:
    assert reduced(VERL_593, "token_mean") == pytest.approx(20 / 6)  # 3.3333
    assert reduced(VERL_593, "sequence_mean") == pytest.approx(6.0)  # (2 + 10) / 2
    assert reduced(VERL_593, "group_total") == pytest.approx(20 / 6)  # one group: its tokens are all tokens
    assert reduced(VERL_593, "constant") == pytest.approx((10 + 10) / 10 / 2)
    assert reduced(VERL_593, "sequence_sum") == pytest.approx((10 + 10) / 2)


def test_groups_of_different_lengths_count_the_same_under_group_total_only() -> None:
    groups = [[[sample(1, 1, 1)], [sample(1)]], [[sample(4)], [sample(4)]]]
    assert reduced(groups, "group_total") == pytest.approx((4 / 4 + 8 / 2) / 2)
    assert reduced(groups, "token_mean") == pytest.approx((4 + 8) / 6)
    assert reduced(groups, "sequence_mean") == pytest.approx((1 + 1 + 4 + 4) / 4)


def test_a_trajectory_of_several_samples_counts_once() -> None:
    whole, parts = [[[sample(1, 2, 3, 6)], [sample(5)]]], [[[sample(1, 2), sample(3), sample(6)], [sample(5)]]]
    for reduction in REDUCTIONS:
        assert reduced(parts, reduction) == pytest.approx(reduced(whole, reduction)), reduction
    assert reduced(parts, "sequence_mean") == pytest.approx((3 + 5) / 2)
    shares = [sample.share for sample in weigh(parts, "sequence_mean")]
    assert shares == [0.5, 0.25, 0.25, 1.0]


def test_a_trajectory_without_samples_counts_nowhere() -> None:
    for reduction in REDUCTIONS:
        assert reduced([[[sample(4)], []], []], reduction) == pytest.approx(0.4 if reduction == "constant" else 4.0)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.lists(st.integers(1, 6), max_size=3), max_size=3), min_size=1, max_size=3),
    st.sampled_from(REDUCTIONS),
    st.integers(2, 30),
)
def test_equal_losses_keep_their_value_in_every_mean(shape, reduction, tokens_per_row) -> None:
    groups = [[[sample(*[0.5] * count) for count in trajectory] for trajectory in group] for group in shape]
    trajectories = [sum(trajectory) for group in shape for trajectory in group if trajectory]
    if not trajectories:
        return
    mean_length = sum(trajectories) / len(trajectories)
    expected = {"sequence_sum": 0.5 * mean_length, "constant": 0.05 * mean_length}.get(reduction, 0.5)
    assert reduced(groups, reduction, tokens_per_row) == pytest.approx(expected, rel=1e-5)


def test_a_name_or_a_length_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of token_mean, sequence_mean"):
        weigh(VERL_593, "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length=None"):
        weigh(VERL_593, "constant")


def test_weights_reach_the_rows_as_float32() -> None:
    (row,) = make_batch(weigh(VERL_593, "sequence_mean"), 100, version=0).rows
    torch.testing.assert_close(row.weights, torch.tensor([0, 0.2, 0.2, 0.2, 0.2, 0.2, 0, 1.0]))
    assert row.share == 2.0
