"""A reward in numbers that a batch can hold."""

from __future__ import annotations

import math

from rlsys.errors import BadInput
from rlsys.types import Reward

LARGEST = 3.4028234663852886e38  # that a float32 holds
ROUNDING = 1e-5  # of the largest of a reward and its parts: rewards may be computed in float32


def require_finite(reward: Reward) -> Reward:
    """The reward itself. Raises BadInput for a nan or an infinity, also of a float32, which would spoil every mean it
    enters, and for parts that do not sum to the value: their curves would explain another reward."""
    parts = list(reward.parts.values())
    numbers = [reward.value, *parts, *(token_value for stream in reward.streams for token_value in stream.values)]
    if not all(math.isfinite(number) and abs(number) <= LARGEST for number in numbers):
        raise BadInput(f"the reward is {reward.value}, or a part or token of it: not a finite number of 32 bits")
    size = max(1.0, *map(abs, [reward.value, *parts]))
    if parts and abs(math.fsum(parts) - reward.value) > ROUNDING * size:
        raise BadInput(f"the reward is {reward.value}, and its parts {dict(reward.parts)} sum to {math.fsum(parts):g}")
    return reward
