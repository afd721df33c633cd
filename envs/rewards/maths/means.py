"""How two cleaned texts without structure are compared: by their looks, or with algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from envs.rewards.maths.form import is_unevaluated
from envs.rewards.maths.numerals import ordinal
from envs.rewards.maths.quantity import quantity, same_quantity
from envs.rewards.maths.text import flat, is_prose
from envs.rewards.maths.verdict import Verdict
from envs.rewards.maths.words import same_words


@dataclass(frozen=True, slots=True)
class Means:
    """How two cleaned texts without structure are compared, given and gold: by their looks, or with algebra."""

    equal: Callable[[str, str], Verdict]  # in any form
    same: Callable[[str, str], Verdict]
    rounds: Callable[[str, str], Verdict]  # exact, decimal: is the decimal the exact one, rounded?


def _finished(equal: Callable[[str, str], Verdict]) -> Callable[[str, str], Verdict]:
    """`equal`, of an answer in the form that the key has."""

    def same(answer: str, gold: str) -> Verdict:
        verdict = _plain(answer, gold)
        return verdict if verdict is not None else not is_unevaluated(answer, gold) and equal(answer, gold)

    return same


def _plain(answer: str, gold: str) -> Verdict:
    """Two texts without structure, as numbers or as words."""
    ours, theirs = quantity(answer), quantity(gold)
    if ours is not None and theirs is not None:
        return same_quantity(ours, theirs)
    if is_prose(answer) or is_prose(gold) or ordinal(flat(gold)) is not None:
        return same_words(answer, gold)
    return None


def _plainly_rounds(exact: str, decimal: str) -> Verdict:
    ours, theirs = quantity(exact), quantity(decimal)
    if theirs is None or theirs.decimals is None:
        return False
    if ours is None:
        return None
    return 2 * abs(ours.value - theirs.value) <= Fraction(1, 10**theirs.decimals)


def _with_algebra(answer: str, gold: str) -> Verdict:
    verdict = _plain(answer, gold)
    if verdict is None:
        from envs.rewards.maths.algebra import is_same_statement  # sympy behind it

        verdict = is_same_statement(answer, gold)
    return verdict


def _algebra_rounds(exact: str, decimal: str) -> Verdict:
    verdict, rounded = _plainly_rounds(exact, decimal), quantity(decimal)
    if verdict is None and rounded is not None:
        from envs.rewards.maths.algebra import is_rounding  # sympy behind it

        verdict = is_rounding(exact, rounded.value, Fraction(1, 2 * 10 ** (rounded.decimals or 0)))
    return verdict


PLAIN = Means(_plain, _finished(_plain), _plainly_rounds)
ALGEBRA = Means(_with_algebra, _finished(_with_algebra), _algebra_rounds)
