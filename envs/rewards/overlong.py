"""DAPO's soft overlong punishment as a finding, for rewards that have its keys: see `docs/rewards/README.md`."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from envs.rewards.findings import Finding
from envs.rewards.length import overlong
from envs.rewards.transcript import num_tokens
from rlsys.errors import require
from rlsys.types import Transcript


@runtime_checkable
class Overlong(Protocol):
    """The keys, in a reward's config."""

    @property
    def max_length(self) -> int | None: ...
    @property
    def overlong_buffer(self) -> int | None: ...
    @property
    def overlong_penalty(self) -> float: ...


def check_overlong(config: Overlong) -> None:
    """Raises BadInput for keys that cannot be used together."""
    limit, buffer, penalty = config.max_length, config.overlong_buffer, config.overlong_penalty
    require(math.isfinite(penalty) and penalty <= 0, "reward.overlong_penalty", penalty, "a finite number, 0 or less")
    if buffer is not None:
        require(limit is not None, "reward.max_length", limit, "a number of tokens beside reward.overlong_buffer")
        fits = 1 <= buffer <= (limit or 0)
        require(fits, "reward.overlong_buffer", buffer, f"from 1 to reward.max_length={limit}, or null")


def overlong_parts(config: Overlong) -> tuple[str, ...]:
    return () if config.overlong_buffer is None else ("overlong",)


def overlong_findings(config: Overlong, transcript: Transcript) -> tuple[Finding, ...]:
    """One, of value 0 where the response is short enough; none without a buffer. Raises BadInput without a length."""
    limit, buffer, penalty = config.max_length, config.overlong_buffer, config.overlong_penalty
    if limit is None or buffer is None:
        return ()
    length, free = num_tokens(transcript), limit - buffer
    rule = f"{length} tokens, free up to {free}"
    if length > free:
        rule = f"{length} tokens: {length - free} past {free}, {penalty:g} from {limit} on"
    value = overlong(length, limit=limit, buffer=buffer, penalty=penalty)
    return (Finding(part="overlong", rule=rule, value=value),)
