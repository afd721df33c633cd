"""Numbers as short answers write them: `$1,080.00`, `391 dollars`, `\\boxed{391}`, `x = 391`, `1/2`, `50%`.

Read strictly: what is not wholly a number with a form of the tables here is none, for a wrong answer must not be paid.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from envs.text.words import unbox

MAX_NUMBER = 64  # characters; a longer text is no number
# Three exponent digits keep the exact value small; [0-9], for \d accepts digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_FRACTION = re.compile(r"([+-]?)(?:([0-9]+)\s?/\s?([0-9]+)|\\[dt]?frac\s?\{([0-9]+)\}\s?\{([0-9]+)\})")
_SAID = re.compile(
    r"(?:so |thus |therefore )?,?(?:the |my )?(?:final |correct )?answer(?:\s?[:=]| is:?)\s*", re.IGNORECASE
)
_NAMED = re.compile(r"([A-Za-z])\s?=\s?|=\s?")
_WRAPPED = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'))
_CURRENCIES = {"$": "$", "€": "€", "£": "£", "¥": "¥", "dollar": "$", "dollars": "$", "usd": "$"} | {
    **dict.fromkeys(("euro", "euros", "eur"), "€"),
    **dict.fromkeys(("gbp",), "£"),
    **dict.fromkeys(("yen", "jpy"), "¥"),
}
_UNIT = re.compile(r"\s?(%|[€£¥$]|\b[A-Za-z]{3,7})\Z")
# Full-width digits and signs, and the mathematical minus. Not NFKC, which reads 5² as 52.
_PLAIN = str.maketrans({chr(0xFEE0 + ord(c)): c for c in "0123456789.,+-%$/="} | {"\u2212": "-"})


@dataclass(frozen=True, slots=True)
class Amount:
    value: Fraction
    unit: str = ""  # %, or the sign of a currency
    name: str = ""  # x of `x = 391`


def read_amount(text: str) -> Amount | None:
    """The exact value of what is wholly a number, with its unit and name. A fraction is one in lowest terms: `48/2` is
    a sum that was not worked out."""
    text = unbox(text)
    if len(text) > MAX_NUMBER:
        return None
    text, name = text.translate(_PLAIN).strip().removesuffix("."), ""
    for _ in range(4):  # in any order
        text = _SAID.sub("", unbox(text).removesuffix("."), count=1) if _SAID.match(text) else unbox(text)
        for begin, end in _WRAPPED:
            if text.startswith(begin) and text.endswith(end) and len(text) > len(begin + end):
                text = text[len(begin) : -len(end)].strip()
        if (named := _NAMED.match(text)) and not name:
            text, name = text[named.end() :], named[1] or ""
    text, unit = text.replace("\\$", "$").replace("\\%", "%").removesuffix(".").rstrip(), ""
    if last := _UNIT.search(text):
        unit = "%" if last[1] == "%" else _CURRENCIES.get(last[1].lower(), "")
        if not unit:
            return None
        text = text[: last.start()]
    sign, rest = (text[0], text[1:]) if text[:1] in ("-", "+") else ("", text)
    if rest[:1] in ("$", "€", "£", "¥"):
        if unit not in ("", rest[0]):
            return None
        unit, rest = rest[0], rest[1:].lstrip()
    value = _value(sign + rest)
    return None if value is None else Amount(value, unit, name)


def same_amount(given: Amount, gold: Amount) -> bool:
    """Equal as far as both say: units and names may be left out by one. Per cent are as in the verifier of mathematics:
    50% is 0.5 and is the 50 of a question that asks for per cent; 0.5% is not 0.5, for below 1 it is the hundredth."""
    if given.name and gold.name and given.name != gold.name:
        return False
    if given.unit == gold.unit:
        return given.value == gold.value
    if "%" in (given.unit, gold.unit):
        share, plain = (given, gold) if given.unit == "%" else (gold, given)
        if plain.unit:
            return False
        return share.value / 100 == plain.value or (share.value == plain.value and abs(plain.value) >= 1)
    return not (given.unit and gold.unit) and given.value == gold.value


def _value(text: str) -> Fraction | None:
    if part := _FRACTION.fullmatch(text):
        top, bottom = int(part[2] or part[4]), int(part[3] or part[5])
        exact = bottom > 1 and math.gcd(top, bottom) == 1
        return Fraction(-top if part[1] == "-" else top, bottom) if exact else None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return Fraction(text) if _NUMBER.fullmatch(text) else None
