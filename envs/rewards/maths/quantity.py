"""Exact numbers as they are written, with their units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from envs.rewards.maths.measure import conversion_factor
from envs.rewards.maths.units import same_unit, split_unit

MAX_DIGITS = 200  # characters of a number that is read exactly
ROUNDED_FROM = 6  # decimals from which a rounded decimal stands for a number that has no finite one
MAX_TOGETHER = 4  # units in `1 day 2 h 3 min 4 s`

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?P<sign>[+-]?)\s?(?P<a>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,3}}))?",
        rf"(?P<sign>[+-]?)\s?(?P<a>{_DECIMAL})\s?(?:\\times|\\cdot|\*|x)\s?10\s?\^\s?\{{?(?P<exponent>[+-]?[0-9]{{1,3}})\}}?",
        rf"(?P<sign>[+-]?)\s?(?P<a>{_DECIMAL})\s?/\s?(?P<b>-?{_DECIMAL})",
        rf"(?P<sign>[+-]?)\s?\\frac\s?\{{\s?(?P<a>-?{_DECIMAL})\s?\}}\s?\{{\s?(?P<b>-?{_DECIMAL})\s?\}}",
        r"(?P<sign>[+-]?)\s?(?P<whole>[0-9]+)\s?\\frac\s?\{\s?(?P<a>[0-9]+)\s?\}\s?\{\s?(?P<b>[0-9]+)\s?\}",
        r"(?P<sign>[+-]?)\s?(?P<whole>[0-9]+)\s(?P<a>[0-9]+)\s?/\s?(?P<b>[0-9]+)",
        r"(?P<sign>[+-]?)\s?(?P<a>[0-9]*\.[0-9]*)\\(?:overline|bar|dot)\s?(?P<repeated>\{\s?[0-9]+\s?\}|[0-9])",
    )
)
_TOGETHER = re.compile(r"(?:,\s?)?(?P<number>[0-9]+(?:\.[0-9]+)?)\s?(?:\\text\s?\{\s?)?(?P<unit>[A-Za-z]+)\s?\}?\s?")


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number as it was written."""

    value: Fraction
    decimals: int | None  # digits after the point; None when it was written as a fraction
    unit: str  # "" without one; "%" for per cent, "egg" for 18 eggs


@lru_cache(maxsize=1024)
def parse_quantity(text: str) -> Quantity | None:
    """The number that a cleaned text is, with its unit: `5 \\text{ cm}`, `\\frac12`, `1 1/2`, `3\\times10^5`, `50%`."""
    if _INTEGER.fullmatch(text):
        return Quantity(Fraction(int(text)), 0, "")
    if len(text) > MAX_DIGITS:
        return None
    body, unit = _split_number(text)
    for form in _FORMS:
        match = form.fullmatch(body)
        if match is not None:
            break
    else:
        return _parse_compound(text)
    group = match.groupdict()
    a, b = group["a"].replace(",", ""), (group.get("b") or "1").replace(",", "")
    if Fraction(b) == 0:
        return None
    value = Fraction(int(group.get("whole") or 0)) + Fraction(a) / Fraction(b)
    value *= Fraction(10) ** int(group.get("exponent") or 0)
    repeated = (group.get("repeated") or "").strip("{} ")
    if repeated:  # the period p of n digits is worth p / (10^n - 1) of the last place before it
        value += Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(a.partition(".")[2]))
    written_as_decimal = group.get("b") is None and group.get("exponent") is None and not repeated
    decimals = len(a.partition(".")[2]) if written_as_decimal else None
    return Quantity(-value if group["sign"] == "-" else value, decimals, unit)


def _split_number(text: str) -> tuple[str, str]:
    if text.endswith("%"):
        return text[:-1].strip(), "%"
    return split_unit(text)


def _parse_compound(text: str) -> Quantity | None:
    """`2 h 30 min`, in the smallest of its units; None where they measure different things."""
    parts: list[tuple[Fraction, str]] = []
    at = 0
    while at < len(text) and len(parts) < MAX_TOGETHER:
        match = _TOGETHER.match(text, at)
        if match is None:
            return None
        parts.append((Fraction(match["number"]), split_unit(rf"1 \text{{{match['unit']}}}")[1]))
        at = match.end()
    if at < len(text) or len(parts) < 2 or not all(unit for _, unit in parts):
        return None
    steps = [conversion_factor(unit, parts[-1][1]) for _, unit in parts]
    sizes = [step for step in steps if step is not None]
    if len(sizes) != len(parts) or any(size <= after for size, after in pairwise(sizes)):
        return None
    total = sum((number * size for (number, _), size in zip(parts, sizes, strict=True)), Fraction())
    return Quantity(total, None, parts[-1][1])


def same_quantity(answer: Quantity, gold: Quantity) -> bool:
    """Whether they are the same amount, converted where both units are known; a unit may be left out on either side."""
    if "%" in (answer.unit, gold.unit) and answer.unit != gold.unit:
        percent, plain = (answer, gold) if answer.unit == "%" else (gold, answer)
        if plain.unit:
            return False
        if percent.value / 100 == plain.value:
            return True
        # A unit may be left out, or added: 50 for 50%, and 50% for 50. But 0.5% is not 0.5: there the sign is a factor.
        return percent.value == plain.value and (abs(plain.value) >= 1 if percent is gold else abs(plain.value) > 1)
    if not same_unit(answer.unit, gold.unit):
        step = conversion_factor(answer.unit, gold.unit)
        return step is not None and answer.value * step == gold.value
    return answer.value == gold.value or _is_rounding(answer, gold) or _is_rounding(gold, answer)


def _is_rounding(decimal: Quantity, exact: Quantity) -> bool:
    """Whether 0.333333 is written for 1/3: correctly rounded, and only where no finite decimal would be exact."""
    if decimal.decimals is None or decimal.decimals < ROUNDED_FROM or exact.decimals is not None:
        return False
    denominator = exact.value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator > 1 and abs(decimal.value - exact.value) <= Fraction(1, 2 * 10**decimal.decimals)
