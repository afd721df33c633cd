"""What a step plays: the lengths of its answers, by an assumption or as a run has played them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.mixed_curriculum import Turns, weights_of

# Of an assumed distribution of lengths. 3.9 % of Qwen3-0.6B's answers to GSM8K ran into their limit (2026-09-08,
# github.com/marin-community/marin/issues/8955): a step that waits for all of its answers waits for one of those.
CUT_OFF = 0.039
DRAWN = 64  # groups of assumed lengths: with 8 answers each, the mean of their engines' work is known to 5 %
AT_LIMIT = " (all at their limit: give lengths with --answer-tokens or --from RUN)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What is played: by an assumption, or as a run has played it."""

    groups: Sequence[Sequence[tuple[float, float]]]  # (sampled tokens, seconds of tools and reward) of each episode
    packed: float  # tokens that the learner packs for an episode, prompts and results too
    said: str
    prefilled: float = 0.0  # tokens of an episode that no engine samples, counted as if all came before those it does

    @property
    def lengths(self) -> Sequence[float]:
        return [tokens for group in self.groups for tokens, _ in group]

    @property
    def mean_tokens(self) -> float:
        return sum(self.lengths) / len(self.lengths)

    @property
    def context(self) -> float:
        """Tokens before a sampled one, on average over all that are sampled: half of a length where all are alike."""
        return self.prefilled + _half_length(self.lengths)

    @property
    def packed_context(self) -> float:
        """Tokens before a packed one, on average over all that are packed."""
        return _half_length([self.prefilled + length for length in self.lengths])


def _half_length(lengths: Sequence[float]) -> float:
    """Half of the length that an average token is in."""
    return sum(length**2 for length in lengths) / (2 * sum(lengths))


def draw_lengths(mean: float, limit: float, count: int) -> list[float]:
    """So many lengths with this mean: an answer stops at each token with the same chance, and few at their limit alone.

    Those few are CUT_OFF of all, but no more than make half of the tokens. The lengths are quantiles, in ascending
    order; all are the limit where the mean is.
    """
    if mean >= limit:
        return [limit] * count
    cut = min(round(CUT_OFF * count), int(mean * count / (2 * limit)))
    rate = stopping_rate((mean * count - limit * cut) / (count - cut), limit)
    stopped = count - cut
    return [min(limit, -math.log(1 - (at + 0.5) / stopped) / rate) for at in range(stopped)] + [limit] * cut


def stopping_rate(mean: float, limit: float) -> float:
    """The chance to stop at a token with which answers up to this limit have this mean, which is below the limit:
    (1 - exp(-rate x limit)) / rate falls with the rate."""
    low, high = 0.0, 1.0  # an answer has a token
    for _ in range(60):  # halvings: beyond the digits of a float
        rate = (low + high) / 2
        low, high = (rate, high) if -math.expm1(-rate * limit) > mean * rate else (low, rate)
    return high


def group_lengths(lengths: Sequence[float], size: int) -> list[list[tuple[float, float]]]:
    """In groups of this size, long and short mixed as in a fixed shuffle; without tools."""
    mixed = list(lengths)
    Random(0).shuffle(mixed)
    return [[(length, 0.0) for length in mixed[at : at + size]] for at in range(0, len(mixed), size)]


def assume_answers(recipe: RecipeConfig, tokens: int | None, prefilled: int = 0) -> Answers:
    """All as long as the limits allow, or of a mean that is given; prompts and results of tools are in the number.
    prefilled: so many of it are such, and not sampled."""
    return _assume_mixed(recipe, tokens, prefilled) if recipe.envs else _assume_alone(recipe, tokens, prefilled, DRAWN)


def _assume_alone(recipe: RecipeConfig, tokens: int | None, prefilled: int, drawn: int) -> Answers:
    """Of one environment. drawn: groups of lengths that differ."""
    rollout, window = recipe.rollout, recipe.engine.max_model_len
    turns = getattr(recipe.env, "max_turns", None) or 1
    longest = min(rollout.max_response_tokens or window, rollout.max_turn_tokens * turns, window)
    length = min(tokens, window) if tokens is not None else longest
    size = recipe.loop.group_size
    if prefilled >= length:
        expected = f"below the {length:,} of an answer that this recipe leaves room for"
        raise BadInput(key="--prefill-tokens", found=prefilled, expected=expected)
    if length >= longest:
        groups, said = [[(float(length - prefilled), 0.0)] * size], f"answers of {length:,} tokens"
        said += f", all alike: no less than the {longest:,} at which the recipe ends a response" * (length > longest)
    else:
        groups = group_lengths(draw_lengths(length - prefilled, longest - prefilled, drawn * size), size)
        said = f"answers of {length:,} tokens on average, up to {longest:,}"
    said += _describe(tokens, prefilled)
    return Answers(groups=groups, packed=float(length), said=said, prefilled=float(prefilled))


def _assume_mixed(recipe: RecipeConfig, tokens: int | None, prefilled: int) -> Answers:
    """Of several environments: as many groups of each as its share of all, and every length that is drawn once."""
    turns = Turns(weights_of(recipe.envs))
    dealt = [turns.of(sequence) for sequence in range(max(DRAWN * len(recipe.envs), recipe.loop.groups_per_step))]
    counts = Counter(name for name, _ in dealt)
    alone = {name: _assume_alone(env, tokens, prefilled, counts[name] or 1) for name, env in recipe.by_env.items()}
    groups = [alone[name].groups[at % len(alone[name].groups)] for name, at in dealt]
    packed = sum(alone[name].packed for name, _ in dealt) / len(dealt)
    lengths = ", ".join(f"{env_answers.packed:,.0f} tokens in {name}" for name, env_answers in alone.items())
    said = f"answers of {lengths}" + _describe(tokens, prefilled)
    return Answers(groups=groups, packed=packed, said=said, prefilled=float(prefilled))


def _describe(tokens: int | None, prefilled: int) -> str:
    return f", {prefilled:,} of each prefilled" * bool(prefilled) + AT_LIMIT * (tokens is None)
