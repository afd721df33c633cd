import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.advantages import (
    group_advantages,
    leave_one_out,
    multi_discount_gae,
    penalize_kl,
    standardize,
)

NAN = float("nan")


def close(actual: torch.Tensor, expected: list[float] | list[list[float]], tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(
        actual.double(), torch.tensor(expected, dtype=torch.float64), atol=tolerance, rtol=0, equal_nan=True
    )


def test_group_advantages_use_the_sample_standard_deviation() -> None:
    close(group_advantages([1, 0, 0, 0, 1]), [1.09544, -0.73030, -0.73030, -0.73030, 1.09544])
    close(group_advantages([1, 0.6667, 0.1, 0.1, 0]), [1.4305, 0.6697, -0.6240, -0.6240, -0.8523])


def test_group_advantages_without_normalization_are_differences_from_the_mean() -> None:
    close(group_advantages([1, 0, 0, 0, 1], normalize_std=False), [0.6, -0.4, -0.4, -0.4, 0.6], 1e-7)


def test_eps_is_added_to_the_standard_deviation() -> None:
    # rewards 0 and 2: mean 1, sample standard deviation sqrt(2)
    close(group_advantages([0, 2], eps=1.0), [-1 / (math.sqrt(2) + 1), 1 / (math.sqrt(2) + 1)], 1e-7)


def test_a_failed_sibling_changes_nobody_and_stays_nan() -> None:
    close(group_advantages([1, NAN, 0, 0, 0, NAN, 1]), [1.09544, NAN, -0.73030, -0.73030, -0.73030, NAN, 1.09544])
    close(leave_one_out([1, NAN, 0, 0]), [1.0, NAN, -0.5, -0.5], 1e-7)


@pytest.mark.parametrize("advantages", [group_advantages, leave_one_out])
def test_without_a_comparison_advantages_are_zero(advantages) -> None:
    close(advantages([0.7, 0.7, 0.7]), [0, 0, 0], 0)
    close(advantages([0.1 + 0.2, 0.3, 0.3]), [0, 0, 0], 0)  # equal but for rounding
    close(advantages([5.0]), [0], 0)
    close(advantages([NAN, 5.0, NAN]), [NAN, 0, NAN], 0)
    close(advantages([NAN, NAN]), [NAN, NAN], 0)
    assert advantages([]).shape == (0,)


def test_leave_one_out_subtracts_the_mean_of_the_others() -> None:
    close(leave_one_out([1, 0, 0, 0, 1]), [0.75, -0.5, -0.5, -0.5, 0.75], 1e-7)


@pytest.mark.parametrize("advantages", [group_advantages, leave_one_out])
def test_advantages_keep_the_dtype_of_a_tensor_and_leave_it_alone(advantages) -> None:
    rewards = torch.tensor([1.0, 0.0, NAN], dtype=torch.float64)
    assert advantages(rewards).dtype == torch.float64
    torch.testing.assert_close(rewards, torch.tensor([1.0, 0.0, NAN], dtype=torch.float64), equal_nan=True)
    assert advantages([1.0, 0.0]).dtype == torch.float32
    assert advantages(torch.tensor([1, 0])).dtype == torch.float32


@pytest.mark.parametrize("rewards", [[float("inf"), 1.0], [[1.0, 0.0]]])
def test_infinite_or_nested_rewards_are_refused(rewards) -> None:
    with pytest.raises(ValueError, match="expected"):
        group_advantages(rewards)


rewards_of_a_group = st.lists(st.integers(-100, 100).map(lambda number: number / 8), min_size=2, max_size=12)


@settings(deadline=None)  # a busy machine is no counterexample
@given(rewards_of_a_group, st.integers(-50, 50))
def test_advantages_sum_to_zero_and_ignore_a_constant(rewards: list[float], shift: int) -> None:
    advantages = group_advantages(torch.tensor(rewards, dtype=torch.float64))
    assert abs(float(advantages.sum())) < 1e-9
    shifted = group_advantages(torch.tensor([reward + shift for reward in rewards], dtype=torch.float64))
    torch.testing.assert_close(advantages, shifted, atol=1e-9, rtol=0)


def test_multi_discount_gae_adds_the_streams_returns() -> None:
    advantages, returns = multi_discount_gae(
        [[0, 0, 0, 2], [0, -0.05, -0.05, 0]], [0.5, 0.5, 0.5, 0.5], discounts=(1.0, 0.99)
    )
    close(returns, [1.901495, 1.9005, 1.95, 2.0], 1e-6)
    close(advantages, [1.401495, 1.4005, 1.45, 1.5], 1e-6)


def test_one_stream_is_ordinary_gae() -> None:
    # discount 0.5, lam 0.5, so errors decay by 0.25:
    # t=2: 1 - 3 = -2; t=1: 0 + 0.5*3 - 2 = -0.5, -0.5 + 0.25*-2 = -1; t=0: 1 + 0.5*2 - 1 = 1, 1 + 0.25*-1 = 0.75
    advantages, returns = multi_discount_gae([[1, 0, 1]], [1, 2, 3], discounts=[0.5], lam=0.5)
    close(advantages, [0.75, -1.0, -2.0], 1e-7)
    close(returns, [1.75, 1.0, 1.0], 1e-7)


def test_one_stream_with_lam_one_is_return_minus_value() -> None:
    exact, _ = multi_discount_gae([[1, 0, 1]], [1, 2, 3], discounts=[0.5], lam=1.0)
    close(exact, [1 + 0.25 - 1, 0.5 - 2, 1 - 3], 1e-7)
    nearly, _ = multi_discount_gae([[1, 0, 1]], [1, 2, 3], discounts=[0.5], lam=1 - 1e-9)
    torch.testing.assert_close(exact, nearly)


def test_gae_returns_carry_no_gradient_and_may_be_empty() -> None:
    advantages, returns = multi_discount_gae(torch.ones(1, 2), torch.ones(2, requires_grad=True), discounts=[1.0])
    assert not advantages.requires_grad and not returns.requires_grad
    for streams, lam in ((2, 1.0), (1, 1.0), (1, 0.95)):
        nothing = torch.zeros(streams, 0), torch.zeros(0)
        advantages, returns = multi_discount_gae(*nothing, discounts=[1.0] * streams, lam=lam)
        assert advantages.shape == returns.shape == (0,)


@pytest.mark.parametrize(
    ("rewards", "values", "discounts", "lam", "message"),
    [
        ([[0, 1], [0, 1]], [0, 0], [1.0, 0.9], 0.95, "requires lam=1"),
        ([[0, 1], [0, 1]], [0, 0], [1.0], 1.0, "1 discounts for 2 reward streams"),
        ([[0, 1]], [0, 0, 0], [1.0], 1.0, r"expected \[M, T\] rewards"),
        ([0, 1], [0, 0], [1.0], 1.0, r"expected \[M, T\] rewards"),
        ([[0, 1]], [0, 0], [1.1], 1.0, "discount=1.1"),
        ([[0, 1]], [0, 0], [1.0], -0.1, "lam=-0.1"),
    ],
)
def test_gae_refuses_what_it_cannot_mean(rewards, values, discounts, lam, message) -> None:
    with pytest.raises(ValueError, match=message):
        multi_discount_gae(rewards, values, discounts=discounts, lam=lam)


def test_the_kl_penalty_is_shared_by_the_streams_and_discounted_in_each() -> None:
    streams, kl = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([0.2, 0.4])
    taken = penalize_kl(streams, kl, coef=0.5)
    close(taken, [[-0.05, 0.9], [-0.05, -0.1]], 1e-7)
    # by hand: stream 0 at discount 1: -0.05 + 0.9; stream 1 at discount 0.5: -0.05 - 0.05
    close(multi_discount_gae(taken, [0.0, 0.0], discounts=(1.0, 0.5))[1], [0.75, 0.8], 1e-7)
    close(penalize_kl(streams[:1], kl, coef=0.5), [[-0.1, 0.8]], 1e-7)
    with pytest.raises(ValueError, match="no reward streams"):
        penalize_kl(torch.zeros(0, 2), kl, coef=0.5)


def test_normalized_advantages_have_mean_zero_and_deviation_one_over_the_mask() -> None:
    advantages, mask = torch.tensor([1.0, NAN, 3.0, 5.0, 7.0]), torch.tensor([1, 0, 1, 1, 1])
    result = standardize(advantages, mask, mean=4.0, std=math.sqrt(5.0))
    close(result, [-3 / math.sqrt(5), 0, -1 / math.sqrt(5), 1 / math.sqrt(5), 3 / math.sqrt(5)], 1e-6)
    values = result[mask.bool()]
    assert float(values.mean()) == pytest.approx(0, abs=1e-7) and float(values.std(correction=0)) == pytest.approx(1)


def test_equal_advantages_are_normalized_to_zero_and_not_to_their_rounding() -> None:
    equal = torch.tensor([0.3, 0.3], dtype=torch.float64)
    close(standardize(equal, torch.ones(2), mean=0.1 + 0.2, std=4e-17), [0, 0], 0)
