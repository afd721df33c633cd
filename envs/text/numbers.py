"""Numbers as people and models write them."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_NUMBER = 64  # characters; a longer text is no number
# Three exponent digits keep the exact value small; [0-9], for \d accepts digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")


def parse_number(text: str) -> Fraction | None:
    """The exact value of a decimal number; a currency sign, percent sign, thousands and a final period are dropped."""
    if len(text) > MAX_NUMBER:
        return None
    cleaned = text.strip().removesuffix(".").removesuffix("%").rstrip()
    sign, rest = (cleaned[0], cleaned[1:]) if cleaned[:1] in ("-", "+") else ("", cleaned)
    cleaned = sign + rest.removeprefix("$").lstrip()
    if _THOUSANDS.fullmatch(cleaned):
        cleaned = cleaned.replace(",", "")
    return Fraction(cleaned) if _NUMBER.fullmatch(cleaned) else None
