"""Exact numbers as they are written, with their units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from envs.rewards.maths.units import split_unit

MAX_DIGITS = 200  # characters of a number that is read exactly

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
_BASE = re.compile(r"(?P<body>.*)_\s?\{?\s?(?P<base>[0-9]{1,2})\s?\}?")


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number as it was written."""

    value: Fraction
    decimals: int | None  # digits after the point; None when it was written as a fraction
    unit: str  # "" without one; "%" for per cent, "base 8" for 12_8, "egg" for 18 eggs


@lru_cache(maxsize=1024)
def quantity(text: str) -> Quantity | None:
    """The number that a cleaned text is, with its unit: `5 \\text{ cm}`, `\\frac12`, `1 1/2`, `3\\times10^5`, `50%`."""
    if _INTEGER.fullmatch(text):
        return Quantity(Fraction(int(text)), 0, "")
    if len(text) > MAX_DIGITS:
        return None
    body, unit = _split(text)
    for form in _FORMS:
        match = form.fullmatch(body)
        if match is not None:
            break
    else:
        return None
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


def _split(text: str) -> tuple[str, str]:
    if text.endswith("%"):
        return text[:-1].strip(), "%"
    based = _BASE.fullmatch(text)
    if based is not None:
        return based["body"].strip(), f"base {based['base']}"
    return split_unit(text)
