"""What is seen in few tasks and what it says of all: intervals, and the test of a difference.

scipy's statistics load much, and every command that composes a recipe comes by here: they are imported
where a number is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlsys.stats import above_zero, require_confidence, require_values

FEW = 15  # differing tasks of which every combination of signs is counted
_CHUNK = 4_000_000  # resampled values that exist at once


def share_interval(
    values: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Interval of the mean of shares: Wilson's where each task is one right or wrong answer, else the bootstrap.

    share_interval([0] * 30) is (0.0, 0.1135). Arguments and errors are those of `bootstrap_interval`.
    """
    count = require_values(values)
    if set(values) <= {0, 1} and (weights is None or list(weights) == [1] * count):
        require_confidence(confidence)
        return _wilson(round(math.fsum(values)), count, confidence)
    return bootstrap_interval(
        values, weights=weights, bounds=(0.0, 1.0), confidence=confidence, resamples=resamples, seed=seed
    )


def bootstrap_interval(
    values: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean: (low, high). The same for the same values and seed.

    For the difference of two systems on the same tasks, give the differences. weights: of a share that is pooled, such
    as satisfied of all constraints: values are what each task adds to the sum, weights what it adds to the count, above
    0. bounds: the least and the greatest value that there can be. With them equal values have an interval too, for as
    many tasks may be other ones as Wilson's interval of 0 allows: of seven times 0.25 within (0, 1) it is 0.1614 to
    0.5158. Without them it is that value. Raises ValueError without values, and for unequal lengths.
    """
    count = require_values(values)
    require_confidence(confidence)
    values_N = np.asarray(values, dtype=np.float64)
    weights_N = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if len(weights_N) != count:
        raise ValueError(f"{count} values against {len(weights_N)} weights: expected as many")
    shares_N = values_N / weights_N
    if np.all(shares_N == shares_N[0]):
        value = float(shares_N[0])
        least, greatest = bounds or (value, value)
        unseen = _wilson(0, count, confidence)[1]
        return value - unseen * (value - least), value + unseen * (greatest - value)
    generator = np.random.default_rng(seed)
    means: list[npt.NDArray[np.float64]] = []
    left = resamples
    while left > 0:
        size = min(left, max(1, _CHUNK // count))
        drawn = generator.integers(count, size=(size, count))
        means.append(values_N[drawn].sum(axis=1) / weights_N[drawn].sum(axis=1))
        left -= size
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail]).tolist()
    return low, high


def _wilson(k: int, n: int, confidence: float) -> tuple[float, float]:
    from scipy import stats

    found = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def paired_test(differences: Sequence[float]) -> tuple[str, float]:
    """Two-sided test that the mean of these differences, one of each task, is 0: (its name, p above 0).

    Two systems on the same tasks: what both find easy or hard cancels out. Differences of -1, 0 and 1 get McNemar's
    exact test; others, where at most `FEW` tasks differ, the exact test over all of their signs, else the t-test.
    paired_test([1, 0, 0, 0, 1]) is ("McNemar", 0.5). Raises ValueError without values.
    """
    from scipy import stats

    count = require_values(differences)
    differ = [kept for each in differences if (kept := round(each, 12))]  # what is smaller is rounding
    if not differ:
        return "McNemar", 1.0
    if set(differ) <= {-1, 1}:
        return "McNemar", above_zero(stats.binomtest(differ.count(1), len(differ)).pvalue)
    if len(differ) == 1:
        return "sign flips", 1.0
    if len(differ) <= FEW:
        found = stats.permutation_test(
            (differ,), np.sum, permutation_type="samples", vectorized=True, n_resamples=2**FEW
        )
        return "sign flips", above_zero(found.pvalue)
    if len(set(differ)) == 1 and count == len(differ):  # without a deviation there is no t
        return "sign flips", above_zero(stats.binomtest(0, count).pvalue)
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    if min(differ) > 0 or max(differ) < 0:  # nearly equal differences have a huge t; signs alone allow no less
        p = max(p, 2.0 ** (1 - len(differ)))
    return "t", above_zero(p)
