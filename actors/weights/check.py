"""A published version at an engine: what shows that it holds what the learner sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsys.system.weight_folder import WeightManifest

if TYPE_CHECKING:  # Ray behind it
    from actors.worker import LoadResult

CANARY_SHARE = 0.1  # of what a perturbation moved: how far an engine may be off and still hold it


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """A version to deliver, and how to know that it arrived: the learner's own log-probabilities of the probe."""

    published: WeightManifest
    probe: tuple[tuple[int, ...], ...]
    expected: tuple[tuple[float, ...], ...]
    moved: float = 0.0  # of perturbed weights: nats per token by which the learner's own numbers changed

    @property
    def version(self) -> int:
        return self.published.version


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCheck:
    """A delivery, and the engine-learner gap in log-probability over the probe's tokens."""

    delivery: LoadResult
    gap_mean: float
    gap_max: float


def logprob_gaps(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    """Of every token. Where either side is nan, the widest gap there is."""
    gaps = [abs(a - b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True)]
    return [gap if gap == gap else float("inf") for gap in gaps]


def allowed_gap(limit: float, moved: float) -> float:
    """The mean gap at which an engine still holds what the learner sent.

    moved: nats per token by which a perturbation changed the learner's own numbers, 0 for true weights. Perturbed
    logits spread wide, and so does what bf16 rounds off them. An engine that kept its old weights is `moved` away.
    """
    return min(max(limit, CANARY_SHARE * moved), moved / 2) if moved else limit


def measure(delivery: LoadResult, publication: WeightUpdate) -> LoadCheck:
    gaps = logprob_gaps(delivery.probe_logprobs, publication.expected)
    return LoadCheck(delivery=delivery, gap_mean=sum(gaps) / len(gaps), gap_max=max(gaps))


def differs(name: str, version: int, gap: float, limit: float) -> str:
    weights = f"version {version}" if version >= 0 else "the changed weights of the start-up check"
    return (
        f"{name} does not compute what the learner computes: on {weights} the mean gap in log-probability is "
        f"{gap:.3g}, the limit is {limit:.3g} (loop.mismatch_limit); it kept old weights or loads them wrongly"
    )
