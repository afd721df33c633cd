"""How two cleaned texts without structure are compared: by their looks, or with algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from envs.rewards.maths.form import is_unevaluated
from envs.rewards.maths.numerals import parse_ordinal
from envs.rewards.maths.quantity import parse_quantity, same_quantity
from envs.rewards.maths.text import flatten, is_prose
from envs.rewards.maths.verdict import Verdict
from envs.rewards.maths.words import same_words


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two cleaned texts without structure are compared, given and gold: by their looks, or with algebra."""

    equal: Callable[[str, str], Verdict]  # in any form
    same: Callable[[str, str], Verdict]
    rounds: Callable[[str, str], Verdict]  # exact, decimal: is the decimal the exact one, rounded?


def _require_evaluated(equal: Callable[[str, str], Verdict]) -> Callable[[str, str], Verdict]:
    """`equal`, of an answer in the form that the key has."""

    def same(answer: str, gold: str) -> Verdict:
        verdict = _equal_without_algebra(answer, gold)
        return verdict if verdict is not None else not is_unevaluated(answer, gold) and equal(answer, gold)

    return same


def _equal_without_algebra(answer: str, gold: str) -> Verdict:
    """Two texts without structure, as numbers or as words."""
    ours, theirs = parse_quantity(answer), parse_quantity(gold)
    if ours is not None and theirs is not None:
        return same_quantity(ours, theirs)
    if is_prose(answer) or is_prose(gold) or parse_ordinal(flatten(gold)) is not None:
        return same_words(answer, gold)
    return None


def _rounds_without_algebra(exact: str, decimal: str) -> Verdict:
    ours, theirs = parse_quantity(exact), parse_quantity(decimal)
    if theirs is None or theirs.decimals is None:
        return False
    if ours is None:
        return None
    return 2 * abs(ours.value - theirs.value) <= Fraction(1, 10**theirs.decimals)


def _equal_with_algebra(answer: str, gold: str) -> Verdict:
    verdict = _equal_without_algebra(answer, gold)
    if verdict is None:
        from envs.rewards.maths.algebra import is_same_statement  # sympy behind it

        verdict = is_same_statement(answer, gold)
    return verdict


def _rounds_with_algebra(exact: str, decimal: str) -> Verdict:
    verdict, rounded = _rounds_without_algebra(exact, decimal), parse_quantity(decimal)
    if verdict is None and rounded is not None:
        from envs.rewards.maths.algebra import is_rounding  # sympy behind it

        verdict = is_rounding(exact, rounded.value, Fraction(1, 2 * 10 ** (rounded.decimals or 0)))
    return verdict


PLAIN = Comparison(_equal_without_algebra, _require_evaluated(_equal_without_algebra), _rounds_without_algebra)
ALGEBRA = Comparison(_equal_with_algebra, _require_evaluated(_equal_with_algebra), _rounds_with_algebra)
