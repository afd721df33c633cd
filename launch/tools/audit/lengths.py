"""Whether what is trained is as long as what was played: systems that drop late episodes train on the short ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTest:
    """Episodes that count for training against those that were left out, by a two-sided Kolmogorov-Smirnov test."""

    played: int
    left_out: int
    played_mean: float  # tokens
    trained_mean: float
    p: float  # of a difference at least as large, were the left out ones chosen by chance; 1 where none was left out

    def describe(self) -> str:
        if not self.left_out:
            return f"all of {self.played:,} episodes count, {self.played_mean:.1f} tokens on average"
        counted = f"{self.played - self.left_out:,} of {self.played:,} episodes count"
        return f"{counted}, {self.trained_mean:.1f} tokens on average against {self.played_mean:.1f}, p = {self.p:.2g}"


Lengths = Sequence[float] | npt.NDArray[np.number]


def compare_lengths(trained: Lengths, left_out: Lengths) -> LengthTest:
    """Tokens of each episode. Raises ValueError for no episodes at all."""
    trained_N, left_out_N = np.asarray(trained, float), np.asarray(left_out, float)
    played = np.concatenate([trained_N, left_out_N])
    if not len(played):
        raise ValueError("no episodes")
    p = 1.0 if not len(left_out_N) else 0.0 if not len(trained_N) else _p_value(trained_N, left_out_N)
    return LengthTest(
        played=len(played),
        left_out=len(left_out_N),
        played_mean=float(played.mean()),
        trained_mean=float(trained_N.mean()) if len(trained_N) else 0.0,
        p=p,
    )


def _p_value(trained: npt.NDArray[np.float64], left_out: npt.NDArray[np.float64]) -> float:
    from scipy.stats import ks_2samp

    return float(ks_2samp(trained, left_out).pvalue)
