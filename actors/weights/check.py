"""A published version at an engine: what shows that it holds what the learner sent, and computes what it computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsys.probe import logprob_gaps, mean_gap
from rlsys.system.weight_folder import WeightManifest

if TYPE_CHECKING:  # Ray behind it
    from actors.worker import LoadResult

# A right engine in bfloat16 is off by .75 to 1.07 times what the learner measures on itself (benchmarks/canary.py,
# SmolLM2).
TIMES_ROUNDING = 2.0
LEAST_LIMIT = 0.003  # nats per token: float32 measures next to nothing, and kernels add in other orders all the same
TAIL = 256  # tokens of a long sample that are compared by themselves: what is wrong at a distance shows there alone


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """A version to deliver, and how to know that it arrived: the learner's own log-probabilities of the probe."""

    published: WeightManifest
    probe: tuple[tuple[int, ...], ...]
    expected: tuple[tuple[float, ...], ...]
    limit: float  # nats per token, of the mean gap
    tail_limit: float | None = None  # the same of the last sample's last `TAIL` tokens, which stands for itself then

    @property
    def version(self) -> int:
        return self.published.version


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCheck:
    """A delivery, and the engine-learner gap in log-probability over the probe's tokens."""

    delivery: LoadResult
    gap_mean: float
    gap_max: float
    refusal: str = ""  # what the engine is off by, if by more than it may be


def allowed_gap(
    rounding: float, *, moved: float = math.inf, configured: float | None = None, perturbed: bool = False
) -> float:
    """The mean gap at which an engine still computes what the learner computes, in nats per token.

    rounding: what the learner's own numbers move by when every result is rounded once more, under the same weights.
    moved: what the canary's perturbation moved them by. An engine that kept its old weights is off by all of it then,
    and in number formats so coarse that rounding comes near it nothing could be told apart: half of it is the most.
    configured: `loop.mismatch_limit`, which takes the place of a measured limit; perturbed weights may be off by more
    than it, never by less.
    """
    measured = max(LEAST_LIMIT, TIMES_ROUNDING * rounding if math.isfinite(rounding) else 0.0)
    if perturbed:
        return min(max(configured or 0.0, measured), moved / 2)
    return min(measured, moved / 2) if configured is None else configured


def measure(delivery: LoadResult, publication: WeightUpdate) -> LoadCheck:
    short = slice(None) if publication.tail_limit is None else slice(-1)
    gaps = logprob_gaps(delivery.probe_logprobs[short], publication.expected[short])
    mean = sum(gaps) / len(gaps)
    refusal = _describe_excess(mean, publication.limit)
    if publication.tail_limit is not None and not refusal:
        theirs, ours = delivery.probe_logprobs[-1], publication.expected[-1]
        tail = mean_gap([theirs[-TAIL:]], [ours[-TAIL:]])
        refusal = _describe_excess(tail, publication.tail_limit, f" at the end of {len(ours) + 1} tokens")
    return LoadCheck(delivery=delivery, gap_mean=mean, gap_max=max(gaps), refusal=refusal)


def _describe_excess(mean: float, limit: float, where: str = "") -> str:
    return "" if mean <= limit else f"{mean:.3g}{where}, the limit is {limit:.3g}"


def differs(name: str, version: int, refusal: str) -> str:
    weights = f"version {version}" if version >= 0 else "the changed weights of the start-up check"
    return (
        f"{name} does not compute what the learner computes: on {weights} the mean gap in log-probability is "
        f"{refusal} (loop.mismatch_limit); it kept old weights, loads them wrongly or computes something else"
    )
