"""Statistics that decide whether two numbers of a report differ."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


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


def pearson(x: Sequence[float], y: Sequence[float], *, confidence: float = 0.95) -> Correlation:
    """Pearson correlation and its confidence band by Fisher's z: tanh(atanh(r) +- q / sqrt(n - 3)).

    With fewer than 4 points the band is everything: (-1, 1). Raises ValueError for unequal lengths or no points.
    """
    count = require_values(x)
    if len(y) != count:
        raise ValueError(f"{count} values against {len(y)}: expected as many")
    require_confidence(confidence)
    mean_x, mean_y = math.fsum(x) / count, math.fsum(y) / count
    dx, dy = [value - mean_x for value in x], [value - mean_y for value in y]
    norm = math.hypot(*dx) * math.hypot(*dy)
    if norm == 0:
        return Correlation(r=math.nan, low=math.nan, high=math.nan, count=count)
    r = max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(dx, dy, strict=True)) / norm))
    if count < 4:
        return Correlation(r=r, low=-1.0, high=1.0, count=count)
    if abs(r) == 1:
        return Correlation(r=r, low=r, high=r, count=count)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) / math.sqrt(count - 3)
    return Correlation(r=r, low=math.tanh(math.atanh(r) - reach), high=math.tanh(math.atanh(r) + reach), count=count)


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


def require_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence!r}: expected between 0 and 1")


def above_zero(p: float) -> float:
    """What is too small for a float is no certainty."""
    return max(float(p), sys.float_info.min)
