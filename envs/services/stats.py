"""What a guard counted, as a record that can be added up over guards and processes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

# Milliseconds, four to a decade: 0.1 ms to 100 s. A last bucket holds what took longer.
LATENCY_BOUNDS_MS = tuple(10 ** (step / 4) for step in range(-4, 21))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStats:
    """Counts since the guard was made; `breaker_open`, `queued`, `in_flight` and `outage` are of now.

    ToolStats(calls=10, cache_hits=4, shared=1, errors={"timeout": 1}, retries=2)
    """

    calls: int = 0
    cache_hits: int = 0
    shared: int = 0  # calls that joined the same query in flight
    ruled: int = 0  # questions that a rule answered, which are no calls
    empty: int = 0  # calls whose answer had nothing in it
    errors: Mapping[str, int] = field(default_factory=dict)  # calls that failed, by FailureKind
    retries: int = 0  # attempts after each call's first
    breaker_opened: int = 0
    breaker_open: bool = False
    queued: int = 0  # waiting for a slot or for a broken tool
    in_flight: int = 0
    outage: str = ""  # why it answers no call now
    latency: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS_MS) + 1)  # attempts per bucket, failed ones too

    @property
    def hit_rate(self) -> float:
        """Share of the calls that the tool did not see; nan without calls."""
        return (self.cache_hits + self.shared) / self.calls if self.calls else math.nan

    def percentile(self, q: float) -> float:
        """Milliseconds that a share `q` of the attempts did not exceed, rounded up to a bound; nan without attempts."""
        total = sum(self.latency)
        if total == 0:
            return math.nan
        reached = bisect_left(list(accumulate(self.latency)), max(1, math.ceil(q * total)))
        return LATENCY_BOUNDS_MS[reached] if reached < len(LATENCY_BOUNDS_MS) else math.inf

    def row(self) -> dict[str, float]:
        """For metrics: finite numbers only, so a rate without calls is left out."""
        counted = ("calls", "retries", "breaker_opened", "breaker_open", "queued", "in_flight")
        row = {"errors": float(sum(self.errors.values()))} | {name: float(getattr(self, name)) for name in counted}
        row |= {f"errors_{kind}": float(count) for kind, count in sorted(self.errors.items())}
        if self.ruled:
            row["ruled"] = float(self.ruled)
        if self.empty:
            row["empty"] = float(self.empty)
        if self.calls:
            row["hit_rate"] = self.hit_rate
        if any(self.latency):
            longest = LATENCY_BOUNDS_MS[-1]
            row |= {f"latency_p{q}_ms": min(self.percentile(q / 100), longest) for q in (50, 95, 99)}
        return row


def latency_bucket(seconds: float) -> int:
    return bisect_left(LATENCY_BOUNDS_MS, seconds * 1000)


def merge(stats: Iterable[ToolStats]) -> ToolStats:
    """The sum; the circuit counts as open where one is."""
    parts = list(stats)
    errors: Counter[str] = Counter()
    for part in parts:
        errors.update(part.errors)
    counted = ("calls", "cache_hits", "shared", "ruled", "empty", "retries", "breaker_opened", "queued", "in_flight")
    return ToolStats(
        **{name: sum(getattr(part, name) for part in parts) for name in counted},
        errors=dict(errors),
        breaker_open=any(part.breaker_open for part in parts),
        outage=next((part.outage for part in parts if part.outage), ""),
        latency=tuple(map(sum, zip(*(part.latency for part in parts), strict=True))) or ToolStats().latency,
    )
