"""What is seen in few tasks, or few seeds, and what it says of all: means, intervals, tests, correlations.

scipy's statistics load much, and every command that composes a recipe comes by here: they are imported
where a number is computed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SEEDS_TEST = "Welch's t over seeds"
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
        return wilson_interval(round(math.fsum(values)), count, confidence)
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
        unseen = wilson_interval(0, count, confidence)[1]
        return value - unseen * (value - least), value + unseen * (greatest - value)
    generator = np.random.default_rng(seed)
    means: list[npt.NDArray[np.float64]] = []
    remaining = resamples
    while remaining > 0:
        size = min(remaining, max(1, _CHUNK // count))
        indices = generator.integers(count, size=(size, count))
        means.append(values_N[indices].sum(axis=1) / weights_N[indices].sum(axis=1))
        remaining -= size
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail]).tolist()
    return low, high


def wilson_interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of k of n: wilson_interval(4, 100) is (0.0157, 0.0984). (0, 1) for n = 0."""
    from scipy import stats

    if n == 0:
        return 0.0, 1.0
    interval = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def paired_test(differences: Sequence[float]) -> tuple[str, float]:
    """Two-sided test that the mean of these differences, one of each task, is 0: (its name, p above 0).

    Two systems on the same tasks: what both find easy or hard cancels out. Differences of -1, 0 and 1 get McNemar's
    exact test; others, where at most `FEW` tasks differ, the exact test over all of their signs, else the t-test.
    paired_test([1, 0, 0, 0, 1]) is ("McNemar", 0.5). Raises ValueError without values, and for one that is not finite.
    """
    from scipy import stats

    count = require_values(differences)
    require_finite(differences)
    differ = [rounded for delta in differences if (rounded := round(delta, 12))]  # what is smaller is rounding
    if not differ:
        return "McNemar", 1.0
    if set(differ) <= {-1, 1}:
        return "McNemar", above_zero(stats.binomtest(differ.count(1), len(differ)).pvalue)
    if len(differ) == 1:
        return "sign flips", 1.0
    if len(differ) <= FEW:
        test = stats.permutation_test(
            (differ,), np.sum, permutation_type="samples", vectorized=True, n_resamples=2**FEW
        )
        return "sign flips", above_zero(test.pvalue)
    if len(set(differ)) == 1 and count == len(differ):  # without a deviation there is no t
        return "sign flips", above_zero(stats.binomtest(0, count).pvalue)
    p = float(stats.ttest_1samp(differences, 0.0).pvalue)
    if min(differ) > 0 or max(differ) < 0:  # nearly equal differences have a huge t; signs alone allow no less
        p = max(p, 2.0 ** (1 - len(differ)))
    return "t", above_zero(p)


def seeds_test(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Welch's t-test over the training seeds of two settings: (p, low, high), with the 95 % interval of the difference
    of their means. Seeds without a spread have no t: p is the least that exchanging them allows, and the interval is
    the difference. Raises ValueError for fewer than two seeds, and for a value that is not finite.
    """
    from scipy import stats

    if min(len(ours), len(theirs)) < 2:
        raise ValueError("a single seed: expected two at least on both sides")
    require_finite([*ours, *theirs])
    difference = math.fsum(ours) / len(ours) - math.fsum(theirs) / len(theirs)
    if are_alike(ours) and are_alike(theirs):
        least = 1.0 if abs(difference) < 1e-12 else 2 / math.comb(len(ours) + len(theirs), len(ours))
        return min(1.0, least), difference, difference
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = test.confidence_interval(0.95)
    return above_zero(test.pvalue), float(interval.low), float(interval.high)


def proportions_z_test(k1: float, n1: float, k2: float, n2: float) -> tuple[float, float]:
    """Two-sided z-test of two proportions with the pooled variance (used by arXiv 2506.00845 for its tables).

    k successes out of n, for each of two samples; k may be fractional where only a rounded rate is known.
    Returns (z, p); z is positive when the first proportion is the larger one. When all succeeded or all failed
    in both samples there is no difference: (0.0, 1.0). Raises ValueError unless n > 0 and 0 <= k <= n.
    """
    for k, n in ((k1, n1), (k2, n2)):
        if not (n > 0 and 0 <= k <= n):
            raise ValueError(f"{k!r} successes out of {n!r}: expected n > 0 and 0 <= k <= n")
    pooled = (k1 + k2) / (n1 + n2)
    variance = pooled * (1 - pooled) * (1 / n1 + 1 / n2)
    if variance <= 0:
        return 0.0, 1.0
    z = (k1 / n1 - k2 / n2) / math.sqrt(variance)
    return z, above_zero(math.erfc(abs(z) / math.sqrt(2)))


def are_alike(values: Sequence[float]) -> bool:
    """Whether they differ by rounding alone."""
    return max(values) - min(values) < 1e-12


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (ddof 1) over seeds. The spread of one value is unknown: nan.

    mean_and_spread([1, 2, 6]) is (3.0, 2.6458). Raises ValueError without values.
    """
    count = require_values(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, math.nan
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that one of k samples is right, without bias, from `samples` of which `right` are (arXiv 2107.03374).

    1 - C(samples - right, k) / C(samples, k): pass_at_k(4, 1, 2) is 0.5. Raises ValueError unless 1 <= k <= samples and
    0 <= right <= samples.
    """
    if not (1 <= k <= samples and 0 <= right <= samples):
        raise ValueError(f"{right} right of {samples}, k={k}: expected 1 <= k <= samples and 0 <= right <= samples")
    return 1 - math.comb(samples - right, k) / math.comb(samples, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Pearson's r with its band. Correlation(r=0.8, low=0.28, high=0.96, count=9)"""

    r: float  # nan where one side does not vary
    low: float
    high: float
    count: int


def pearson(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Pearson correlation and its 95 % band by Fisher's z: tanh(atanh(r) +- 1.96 / sqrt(n - 3)).

    With fewer than 4 points the band is everything: (-1, 1). Raises ValueError for unequal lengths or no points.
    """
    from scipy import stats

    count = require_values(x)
    if len(y) != count:
        raise ValueError(f"{count} values against {len(y)}: expected as many")
    if any(max(values) - min(values) <= 1e-9 * max(map(abs, values)) for values in (x, y)):  # what is left is rounding
        return Correlation(r=math.nan, low=math.nan, high=math.nan, count=count)
    result = stats.pearsonr(x, y)
    band = result.confidence_interval(0.95)
    return Correlation(r=float(result.statistic), low=float(band.low), high=float(band.high), count=count)


def macro_label_accuracy(labels: Sequence[Sequence[float]]) -> float:
    """Process-label accuracy as SWiRL reports it (arXiv 2504.04736, table 3): the mean over trajectories of their mean.

    macro_label_accuracy([[1, 1, 0], [1]]) is 0.8333, where the mean over steps would be 0.75. Raises ValueError for no
    trajectory, or one without steps.
    """
    return math.fsum(math.fsum(steps) / require_values(steps) for steps in labels) / require_values(labels)


def require_values(values: Sequence[object]) -> int:
    if not values:
        raise ValueError("no values: expected at least one")
    return len(values)


def require_finite(values: Sequence[float]) -> None:
    if not all(map(math.isfinite, values)):
        raise ValueError("a value is not finite: expected numbers")


def require_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence!r}: expected between 0 and 1")


def above_zero(p: float) -> float:
    """What is too small for a float is no certainty."""
    return max(float(p), sys.float_info.min)
