import math

import pytest

from rlsys.stats import proportions_z_test


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
