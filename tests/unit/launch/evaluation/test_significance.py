"""Intervals and tests of few tasks, by hand."""

import pytest

from launch.evaluation.significance import bootstrap_interval, paired_test, share_interval
from rlsys.stats import proportions_z_test


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
