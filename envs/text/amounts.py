"""Numbers as short answers write them: `$1,080.00`, `391 dollars`, `\\boxed{391}`, `x = 391`, `1/2`, `50%`.

Read strictly: what is not wholly a number with a form of the tables here is none, for a wrong answer must not be paid.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from envs.text.words import unbox

MAX_NUMBER = 64  # characters; a longer text is no number
# Three exponent digits keep the exact value small; [0-9], for \d accepts digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_SPACE = re.compile("(?<=[0-9])(?:[\u00a0\u2009\u202f]|\\\\,|\\{,\\})(?=[0-9]{3})")  # between thousands
_FONT = re.compile(r"\\(?:text|math)(?:bf|it|rm|sf)?\s?\{([^{}]*)\}")
_FRACTION = re.compile(
    r"([+-]?)(?:([0-9]+)\s?/\s?([0-9]+)|\\[dt]?frac\s?(?:\{([0-9]+)\}\s?\{([0-9]+)\}|([0-9])([0-9])))"
)
_MIXED = re.compile(r"([+-]?)([0-9]+) ([0-9]+/[0-9]+)")
_VULGAR = re.compile("\\s?([\u00bc-\u00be\u2153-\u215e])")
_SAID = re.compile(
    r"(?:so |thus |therefore )?,?(?:the |my )?(?:final |correct )?answer(?:\s?[:=]| is:?)\s*", re.IGNORECASE
)
_NAMED = re.compile(r"([A-Za-z])\s?=\s?|=\s?")
_WRAPPED = (
    ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("*", "*"), ("_", "_"), ("`", "`"),
    ('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"),
)  # fmt: skip
_CURRENCIES = {"$": "$", "€": "€", "£": "£", "¥": "¥", "dollar": "$", "dollars": "$", "usd": "$"} | {
    **dict.fromkeys(("euro", "euros", "eur"), "€"),
    **dict.fromkeys(("gbp",), "£"),
    **dict.fromkeys(("yen", "jpy"), "¥"),
    "percent": "%",
}
_CODE = re.compile(r"([+-]?)(?:(US\$)|(USD|EUR|GBP|JPY))\s?(?=[0-9.])", re.IGNORECASE)
_UNIT = re.compile(r"\s?(%|[€£¥$]|\b[A-Za-z]{3,7})\Z")
# Full-width digits and signs, and the mathematical minus. Not NFKC, which reads 5² as 52.
_PLAIN = str.maketrans(
    {chr(0xFEE0 + ord(c)): c for c in "0123456789.,+-%$/="} | dict.fromkeys("\u2212\u2013\ufe63", "-")
)


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
    text, name = _VULGAR.sub(_spell_out, text.translate(_PLAIN).strip().removesuffix(".")), ""
    for _ in range(4):  # in any order
        text = unwrap(text)
        if (label := _NAMED.match(text)) and not name:
            text, name = text[label.end() :], label[1] or ""
    text, unit = text.replace("\\$", "$").replace("\\%", "%").removesuffix(".").rstrip(), ""
    if last := _UNIT.search(text):
        unit = "%" if last[1] == "%" else _CURRENCIES.get(last[1].lower(), "")
        if not unit:
            return None
        text = text[: last.start()]
    if code := _CODE.match(text):
        if unit:
            return None
        unit, text = "$" if code[2] else _CURRENCIES[code[3].lower()], code[1] + text[code.end() :]
    sign, unsigned = (text[0], text[1:]) if text[:1] in ("-", "+") else ("", text)
    if unsigned[:1] in ("$", "€", "£", "¥"):
        if unit not in ("", unsigned[0]):
            return None
        unit, unsigned = unsigned[0], unsigned[1:].lstrip()
    value = _exact_value(sign + unsigned)
    return None if value is None else Amount(value, unit, name)


def unwrap(text: str) -> str:
    """Without one layer of each thing that says nothing: a box, "the answer is", signs around it, a font."""
    text = unbox(text)
    text = _FONT.sub(r"\1", _SAID.sub("", text.removesuffix("."), count=1) if _SAID.match(text) else text).strip()
    text = re.sub(" {2,}", " ", text)
    for begin, end in _WRAPPED:
        if text.startswith(begin) and text.endswith(end) and len(text) > len(begin + end):
            text = text[len(begin) : -len(end)].strip()
    return text


def _spell_out(match: re.Match[str]) -> str:
    """1/2 of its sign, behind a space where a number stands before it."""
    part = unicodedata.normalize("NFKC", match[1]).replace("\u2044", "/")
    return f" {part}" if match.start() else part


def same_amount(answer: Amount, gold: Amount) -> bool:
    """Equal as far as both say: units and names may be left out by one. Per cent are as in the verifier of mathematics:
    50% is 0.5 and is the 50 of a question that asks for per cent; 0.5% is not 0.5, for below 1 it is the hundredth."""
    if answer.name and gold.name and answer.name != gold.name:
        return False
    if answer.unit == gold.unit:
        return answer.value == gold.value
    if "%" in (answer.unit, gold.unit):
        share, plain = (answer, gold) if answer.unit == "%" else (gold, answer)
        if plain.unit:
            return False
        return share.value / 100 == plain.value or (share.value == plain.value and abs(plain.value) >= 1)
    return not (answer.unit and gold.unit) and answer.value == gold.value


def _exact_value(text: str) -> Fraction | None:
    text = _SPACE.sub("", text)
    if mixed := _MIXED.fullmatch(text):
        part_of = _exact_value(mixed[3])
        value = None if part_of is None or part_of >= 1 else int(mixed[2]) + part_of
        return -value if value is not None and mixed[1] == "-" else value
    if part := _FRACTION.fullmatch(text):
        top, bottom = int(part[2] or part[4] or part[6]), int(part[3] or part[5] or part[7])
        exact = bottom > 1 and math.gcd(top, bottom) == 1
        return Fraction(-top if part[1] == "-" else top, bottom) if exact else None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return Fraction(text) if _NUMBER.fullmatch(text) else None
