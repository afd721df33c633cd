"""Statistics that decide whether two numbers of a report differ."""

from __future__ import annotations

import math


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
    return z, math.erfc(abs(z) / math.sqrt(2))
