"""Length and repetition: "Demystifying Long Chain-of-Thought Reasoning" (arXiv 2502.03373), appendix I, and DAPO.

DAPO's soft overlong punishment is also a finding, for rewards that have its keys: see `docs/rewards/README.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from envs.rewards.findings import Finding
from envs.rewards.transcript import num_tokens
from rlsys.errors import require
from rlsys.types import Transcript


class Overlong(Protocol):
    """The keys, in a reward's config."""

    @property
    def max_length(self) -> int | None: ...
    @property
    def overlong_buffer(self) -> int | None: ...
    @property
    def overlong_penalty(self) -> float: ...


def cosine_reward(
    correct: bool,
    length: int,
    *,
    max_length: int,
    r0_correct: float,
    rL_correct: float,
    r0_wrong: float,
    rL_wrong: float,
    exceed: float,
    margin: int,
) -> float:
    """A half cosine from `r0` at length 0 to `rL` at `max_length`; `exceed` from `max_length - margin` tokens on.

    Equation 1 as its symbols are defined: the printed CosFn, called as printed, would start at rL and end at r0. The
    limit is looked at first, as in the authors' code. `length` counts the tokens of the response, its end token too.
    """
    if length + margin >= max_length:
        return exceed
    start, end = (r0_correct, rL_correct) if correct else (r0_wrong, rL_wrong)
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * length / max_length))


def overlong(length: int, *, limit: int, buffer: int, penalty: float) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13): 0 up to `limit - buffer` tokens, from there on a
    straight line to `penalty` at `limit`, and `penalty` beyond. `limit` is L_max, `buffer` L_cache, `penalty` -1 there.

    overlong(18432, limit=20480, buffer=4096, penalty=-1.0) is -0.5. Raises ValueError unless 1 <= buffer <= limit.
    """
    if not 1 <= buffer <= limit:
        raise ValueError(f"buffer={buffer}: expected 1 to limit={limit}")
    over = length - (limit - buffer)
    return penalty * min(over, buffer) / buffer if over > 0 else 0.0


def check_overlong(config: Overlong) -> None:
    """Raises BadInput for keys that cannot be used together."""
    limit, buffer, penalty = config.max_length, config.overlong_buffer, config.overlong_penalty
    require(math.isfinite(penalty) and penalty <= 0, "reward.overlong_penalty", penalty, "a finite number, 0 or less")
    if buffer is not None:
        require(limit is not None, "reward.max_length", limit, "a number of tokens with reward.overlong_buffer")
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


def ngram_penalty(token_ids: Sequence[int], *, n: int, penalty: float) -> list[float]:
    """Algorithm 1: `penalty` on every token of every n-gram that stood earlier in the sequence, else 0. Not added up.

    ngram_penalty([1, 2, 3, 1, 2, 3, 4], n=2, penalty=p) is [0, 0, 0, p, p, p, 0]. Time and memory grow with
    len(token_ids) * log(n). Raises ValueError unless n >= 1.
    """
    if n < 1:
        raise ValueError(f"n={n}: expected at least 1")
    rewards = [0.0] * len(token_ids)
    earlier_grams: set[int] = set()
    painted = 0
    for start, gram in enumerate(_gram_ids(token_ids, n)):
        if gram in earlier_grams:
            begin = max(start, painted)
            painted = start + n
            rewards[begin:painted] = [penalty] * (painted - begin)
        earlier_grams.add(gram)
    return rewards


def _gram_ids(token_ids: Sequence[int], n: int) -> list[int]:
    """A number for the n-gram at each place, equal exactly where the n-grams are.

    Grams of width w become grams of width w + step as pairs of their overlapping halves, so no gram is ever hashed
    token by token.
    """
    ids, width = list(token_ids), 1
    while width < n and len(ids) > 0:
        step = min(width, n - width)
        table: dict[tuple[int, int], int] = {}
        ids = [table.setdefault((ids[at], ids[at + step]), len(table)) for at in range(len(ids) - step)]
        width += step
    return ids
