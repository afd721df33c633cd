"""Intervals and tests of few tasks, by hand."""

import math

import pytest

from launch.run_dir.significance import (
    bootstrap_interval,
    macro_label_accuracy,
    mean_and_spread,
    paired_test,
    pass_at_k,
    pearson,
    proportions_z_test,
    share_interval,
    wilson_interval,
)


def test_a_bootstrap_interval_of_half_ones_is_the_binomial_one() -> None:
    low, high = bootstrap_interval([0.0, 1.0] * 200)
    # 0.5 +- 1.96 * sqrt(0.25 / 400) = 0.5 +- 0.049
    assert (low, high) == (pytest.approx(0.451, abs=0.004), pytest.approx(0.549, abs=0.004))
    assert (low, high) == bootstrap_interval([0.0, 1.0] * 200)
    wide = bootstrap_interval([0.0, 1.0] * 200, confidence=0.99)
    assert wide[0] < low and high < wide[1]


def test_a_bootstrap_interval_of_equal_values_without_bounds_is_that_value() -> None:
    assert bootstrap_interval([0.25] * 7, resamples=50) == (0.25, 0.25)
    assert bootstrap_interval([3.0], resamples=50) == (3.0, 3.0)


def test_a_paired_test_by_hand() -> None:
    assert paired_test([1, 0, 0, 0, 1]) == ("McNemar", pytest.approx(2 / 2**2))
    assert paired_test([1] * 4 + [0] * 26) == ("McNemar", pytest.approx(2 / 2**4))
    assert paired_test([1] * 5 + [-1])[1] == pytest.approx(2 * (1 + 6) / 2**6)
    assert paired_test([1, -1, 0])[1] == paired_test([0, 0])[1] == paired_test([1])[1] == 1.0
    # of the 8 signs of .25 .5 .5 two reach 1.25; of .25 .5 -.5 six reach .25
    assert paired_test([0.25, 0.5, 0.5, 0.0]) == ("sign flips", pytest.approx(2 / 8))
    assert paired_test([0.25, 0.5, -0.5])[1] == 1.0
    assert paired_test([0.1 + 0.2 - 0.3] * 20)[1] == 1.0  # 5e-17 is no difference
    # mean 0.2, deviation sqrt(20 * 0.09 / 19): t = 0.2 / (0.3078 / sqrt(20)) = 2.906 with 19 degrees of freedom
    # all of one sign: no p below that of 17 equal signs
    assert paired_test([1] * 16 + [0.5]) == paired_test([-1] * 16 + [-0.5]) == ("t", pytest.approx(2.0**-16))
    assert paired_test([0.5, -0.1] * 10) == ("t", pytest.approx(0.00906, rel=1e-3))


@pytest.mark.parametrize("differences", [[1, 1], [-1] * 3000, [0.25] * 2, [0.25] * 3000, [1.0, 1.1] * 3000])
def test_no_p_is_0(differences: list[float]) -> None:
    assert 0 < paired_test(differences)[1] <= 0.5
    assert proportions_z_test(9_000, 10_000, 100, 10_000)[1] > 0


def test_the_interval_of_nothing_right_is_wilsons() -> None:
    # z^2 / (n + z^2) with z = 1.96
    assert share_interval([0] * 30) == (pytest.approx(0.0), pytest.approx(3.8415 / 33.8415, rel=1e-4))
    assert share_interval([1] * 30) == (pytest.approx(30 / 33.8415, rel=1e-4), pytest.approx(1.0))
    low, high = share_interval([1.0] * 15 + [0.0] * 15, weights=[1] * 30)
    assert low == pytest.approx(1 - high) and high == pytest.approx(0.6685, abs=1e-4)
    # tasks of several samples that all came to the same: as many may come to something else
    unseen = 3.8415 / (5 + 3.8415)
    low, high = share_interval([2.0] * 5, weights=[4] * 5)
    assert (low, high) == (pytest.approx(0.5 - 0.5 * unseen, rel=1e-4), pytest.approx(0.5 + 0.5 * unseen, rel=1e-4))
    assert bootstrap_interval([0.0] * 5, bounds=(-1.0, 1.0)) == (
        pytest.approx(-high * 2 + 1),
        pytest.approx(unseen, rel=1e-4),
    )


def test_an_interval_of_a_pooled_share_weighs_its_tasks() -> None:
    # 9 of 10 and 0 of 1: drawn alone they give 0.9 and 0, together 9 / 11
    assert bootstrap_interval([9, 0], weights=[10, 1], confidence=0.999) == (0.0, 0.9)
    even = [1.0, 0.0, 1.0]
    assert bootstrap_interval(even, weights=[1, 1, 1]) == bootstrap_interval(even)
    with pytest.raises(ValueError, match="3 values against 1 weights"):
        bootstrap_interval(even, weights=[1])


@pytest.mark.parametrize(
    "call",
    [
        lambda: bootstrap_interval([]),
        lambda: share_interval([1.0], confidence=1.0),
        lambda: bootstrap_interval([1.0], confidence=1.0),
        lambda: paired_test([]),
    ],
)
def test_nothing_is_told_of_nothing(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="expected"):
        call()


@pytest.mark.parametrize(
    ("rate1", "rate2", "n", "expected"),
    [
        # published comparisons of arXiv 2506.00845, recomputed from the printed rates
        (0.575, 0.592, 6968, 0.0418),
        (0.573, 0.605, 6968, 1.24e-4),
        (0.627, 0.488, 6968, 2.7e-61),
        (0.805, 0.700, 1000, 5.3e-8),
        (0.870, 0.829, 1000, 0.0103),
        (0.170, 0.074, 500, 3.5e-6),
    ],
)
def test_p_values_of_the_paper_are_reproduced(rate1: float, rate2: float, n: int, expected: float) -> None:
    z, p = proportions_z_test(rate1 * n, n, rate2 * n, n)
    assert p == pytest.approx(expected, rel=0.02)
    assert (z > 0) == (rate1 > rate2)


def test_unequal_sample_sizes_by_hand() -> None:
    # pooled 30/60 = 0.5, variance 0.25 * (1/20 + 1/40) = 0.01875, difference 0.75 - 0.375
    z, p = proportions_z_test(15, 20, 15, 40)
    assert z == pytest.approx(0.375 / math.sqrt(0.01875))
    assert p == pytest.approx(math.erfc(z / math.sqrt(2)))


def test_exchanging_the_samples_changes_only_the_sign() -> None:
    z, p = proportions_z_test(7, 10, 11, 30)
    assert proportions_z_test(11, 30, 7, 10) == (pytest.approx(-z), pytest.approx(p))


@pytest.mark.parametrize("k", [0, 10])
def test_no_variance_is_no_difference(k: int) -> None:
    assert proportions_z_test(k, 10, k, 10) == (0.0, 1.0)


@pytest.mark.parametrize("counts", [(1, 0, 1, 2), (3, 2, 1, 2), (-1, 2, 1, 2), (float("nan"), 2, 1, 2)])
def test_impossible_counts_are_refused(counts) -> None:
    with pytest.raises(ValueError, match="expected n > 0 and 0 <= k <= n"):
        proportions_z_test(*counts)


def test_mean_and_spread_over_seeds_by_hand() -> None:
    # squares of -2, -1, 3 around the mean 3: 14 / 2
    assert mean_and_spread([1, 2, 6]) == (3.0, pytest.approx(math.sqrt(7)))
    assert mean_and_spread([0.5, 0.5]) == (0.5, 0.0)


def test_the_spread_of_one_seed_is_unknown() -> None:
    mean, spread = mean_and_spread([0.25])
    assert mean == 0.25 and math.isnan(spread)


def test_pearson_by_hand() -> None:
    # dx = -1.5 -.5 .5 1.5, dy = -1.5 .5 -.5 1.5: 4 / 5
    correlation = pearson([1, 2, 3, 4], [1, 3, 2, 4])
    assert correlation.r == pytest.approx(0.8) and correlation.count == 4
    reach = 1.959964 / math.sqrt(1)
    assert correlation.low == pytest.approx(math.tanh(math.atanh(0.8) - reach))
    assert correlation.high == pytest.approx(math.tanh(math.atanh(0.8) + reach))


def test_a_line_correlates_fully_and_a_constant_not_at_all() -> None:
    falling = pearson([1, 2, 3, 4], [8, 6, 4, 2])
    assert (falling.r, falling.low, falling.high) == (pytest.approx(-1), pytest.approx(-1), pytest.approx(-1))
    assert math.isnan(pearson([1, 1, 1], [1, 2, 3]).r)


def test_three_points_say_nothing_about_the_band() -> None:
    correlation = pearson([1, 2, 3], [1, 2, 4])
    assert (correlation.low, correlation.high) == (-1.0, 1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mean_and_spread([]),
        lambda: pearson([], []),
        lambda: pearson([1.0], [1.0, 2.0]),
        lambda: macro_label_accuracy([]),
        lambda: macro_label_accuracy([[1.0], []]),
    ],
)
def test_statistics_of_nothing_are_refused(call) -> None:
    with pytest.raises(ValueError, match="expected"):
        call()


def test_process_labels_are_averaged_within_then_across_trajectories() -> None:
    assert macro_label_accuracy([[1, 1, 0], [1]]) == pytest.approx(5 / 6)  # over steps it would be 3 / 4


def test_pass_at_k_by_hand() -> None:
    # of 4 samples 1 is right: of the 6 pairs 3 hold it
    assert [pass_at_k(4, 1, k) for k in (1, 2, 3, 4)] == pytest.approx([1 / 4, 3 / 6, 3 / 4, 1.0])
    assert (pass_at_k(3, 0, 3), pass_at_k(3, 3, 1), pass_at_k(5, 3, 3)) == (0.0, 1.0, 1.0)
    for samples, right, k in ((2, 1, 3), (2, 3, 1), (2, 1, 0)):
        with pytest.raises(ValueError, match="expected 1 <= k <= samples"):
            pass_at_k(samples, right, k)


def test_wilson_intervals() -> None:
    assert wilson_interval(4, 100) == pytest.approx((0.0157, 0.0984), abs=1e-4)
    assert wilson_interval(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert wilson_interval(10, 10)[1] == 1.0
    assert wilson_interval(0, 0) == (0.0, 1.0)
