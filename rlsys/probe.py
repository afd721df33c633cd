"""What learner and engine are compared on after a delivery of weights, and what the learner computes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsys.system.device import RoundingUnits

SAMPLES = 4  # after every delivery; engines have so many seats for them, and as a rule answer them in one step


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Some samples, and under which weights they are computed.

    Probe(samples=((1, 2, 3), (4, 5)), units=RoundingUnits(products=2**-8, rest=2**-8), noise=0.25)
    """

    samples: tuple[tuple[int, ...], ...]  # token ids
    units: RoundingUnits  # of the side that rounds more coarsely
    noise: float = 0.0  # that the weights carry meanwhile, relative to their own size
    seed: int = 0  # of the noise and of the roundings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeValues:
    """Log-probabilities of every token but the first, one list for each sample."""

    logprobs: Sequence[Sequence[float]]
    rounded: Sequence[Sequence[float]]  # the same with every result rounded once more


def logprob_gaps(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    """Of every token, in nats. Where either side is nan, the widest gap there is."""
    gaps = [abs(a - b) for left, right in zip(ours, theirs, strict=True) for a, b in zip(left, right, strict=True)]
    return [gap if gap == gap else float("inf") for gap in gaps]


def mean_gap(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    gaps = logprob_gaps(ours, theirs)
    return sum(gaps) / len(gaps)
