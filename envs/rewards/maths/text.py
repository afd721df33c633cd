"""Mathematics as people write it: one spelling for each thing, exact numbers with their units, and what lists hold.

Nothing here evaluates anything. Texts are bounded by MAX_ANSWER before they come here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from envs.text.boxed import last_boxed

_CHARACTERS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ", "\u00f7": "/",
        "\u03c0": r"\pi ", "\u221a": r"\sqrt ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ",
        "\u2260": r"\ne ", "\u00b0": r"^\circ ", "\u00b2": "^{2}", "\u00b3": "^{3}", "\u00bd": r"\frac{1}{2}",
        "\u00bc": r"\frac{1}{4}", "\u00be": r"\frac{3}{4}", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ",
        "\u00b1": r"\pm ", "\uff05": "%", "\uff0c": ",", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    }
)  # fmt: skip
_REWRITES = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s?\.?", ""),
        (r"(?<!\\)\\!|\\displaystyle(?![a-zA-Z])", ""),
        (r"\{,\}", ","),
        (r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![a-zA-Z])", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\(?:math(?:rm|bf|it|sf)|text(?:bf|it|rm|sf|normal)|operatorname|mbox)(?![a-zA-Z])", r"\\text"),
        (r"\^\s?(?:\\circ(?![a-zA-Z])|\{\s?\\circ\s?\})|\\degree(?![a-zA-Z])", r"^\\circ "),
        (r"\\(le|ge|ne)q(?![a-zA-Z])", r"\\\1 "),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset "),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\%|\s?\\text\s?\{\s?percent\s?\}|(?<=[0-9.])\s?percent\b", "%"),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
        (r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty "),
        (r"(?<![A-Za-z\\])sqrt(?![A-Za-z])", r"\\sqrt"),
        (r"\\sqrt\s?\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?:\s?,)?\s?\\text\s?\{\s?(?:and|or)\s?\}\s?|(?:\s?,)?\s(?:and|or)\s", ", "),
        (r"\\mathbb\s?([A-Z])", r"\\mathbb{\1}"),
        (r"\s+", " "),
    )
)
_TEXT = re.compile(r"\\text\s?\{([^{}]*)\}")
_SPACE = re.compile(r"(?<!\w) | (?!\w)")
_NAME = re.compile(r"\s*(?P<name>\\?[A-Za-z](?:[A-Za-z]{0,9}\([A-Za-z]\)|_\{?\w{1,8}\}?)?)\s?(?:=|\\in(?![a-z]))(?!=)")
# 10 000, but 1 200/300 is a mixed number.
_THOUSANDS = re.compile(r"(?<![0-9.,}])[0-9]{1,3}(?: [0-9]{3})+(?![0-9]|\s?/)")
# Runs of letters that are mathematics without a backslash.
_FUNCTIONS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan")
    + ("log", "exp", "det", "gcd", "lcm", "max", "min", "mod")
)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?P<sign>[+-]?)\s?(?P<a>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,3}}))?",
        rf"(?P<sign>[+-]?)\s?(?P<a>{_DECIMAL})\s?(?:\\times|\\cdot|\*|x)\s?10\s?\^\s?\{{?(?P<exponent>[+-]?[0-9]{{1,3}})\}}?",
        rf"(?P<sign>[+-]?)\s?(?P<a>{_DECIMAL})\s?/\s?(?P<b>-?{_DECIMAL})",
        rf"(?P<sign>[+-]?)\s?\\frac\s?\{{\s?(?P<a>-?{_DECIMAL})\s?\}}\s?\{{\s?(?P<b>-?{_DECIMAL})\s?\}}",
        r"(?P<sign>[+-]?)\s?\\frac\s?(?P<a>[0-9])\s?(?P<b>[0-9])",
        r"(?P<sign>[+-]?)\s?(?P<whole>[0-9]+)\s?\\frac\s?\{\s?(?P<a>[0-9]+)\s?\}\s?\{\s?(?P<b>[0-9]+)\s?\}",
        r"(?P<sign>[+-]?)\s?(?P<whole>[0-9]+)\s(?P<a>[0-9]+)\s?/\s?(?P<b>[0-9]+)",
        r"(?P<sign>[+-]?)\s?(?P<a>[0-9]*\.[0-9]*)\\(?:overline|bar|dot)\s?(?P<repeated>\{\s?[0-9]+\s?\}|[0-9])",
    )
)
MAX_DIGITS = 200  # characters of a number that is read exactly

_UNIT_NAMES = {
    "mm": "mm millimeter millimetre", "cm": "cm centimeter centimetre", "m": "m meter metre",
    "km": "km kilometer kilometre", "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard", "mi": "mi mile",
    "mg": "mg milligram", "g": "g gram", "kg": "kg kilogram", "lb": "lb lbs pound", "oz": "oz ounce", "t": "ton tonne",
    "s": "s sec second", "min": "min minute", "h": "h hr hrs hour", "day": "day", "week": "week", "month": "month",
    "year": "year yr yrs", "l": "l L liter litre", "ml": "ml mL milliliter millilitre", "gal": "gal gallon",
    "$": "dollar usd USD", "cent": "cent", "euro": "euro", "deg": "deg degree", "rad": "rad radian", "mph": "mph",
    "km/h": "km/h kmh kmph", "m/s": "m/s", "unit": "unit", "point": "point", "way": "way", "people": "people",
    "cup": "cup",
}  # fmt: skip
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}
_UNITS |= {f"{name}s": unit for name, unit in _UNITS.items() if len(name) > 2}
# One letter is a unit only inside \\text: elsewhere it is a variable.
_TEXT_UNIT = r"(?P<body>.*?\S)\s?\\text\s?\{\s?(?P<unit>[^{}]{1,40}?)\s?\}"
_BARE_UNIT = r"(?P<body>.*?[0-9.}])\s?(?P<unit>(?:[a-z]{2,6}\.?\s)?[A-Za-z/]{2,20})"
_WITH_UNIT = tuple(re.compile(form + r"\.?\s?(?P<power>\^\s?\{?[23]\}?)?") for form in (_TEXT_UNIT, _BARE_UNIT))
_BASE = re.compile(r"(?P<body>.*)_\s?\{?\s?(?P<base>[0-9]{1,2})\s?\}?")
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact number as it was written."""

    value: Fraction
    decimals: int | None  # digits after the point; None when it was written as a fraction
    unit: str  # "" without one; "%" for per cent, "base 8" for 12_8


@lru_cache(maxsize=1024)  # siblings of one group share the gold, and often the answer
def clean(text: str) -> str:
    """One spelling: no delimiters, no spacing commands, no boxes, single spaces, ASCII where LaTeX has a command."""
    text = text.strip()
    if "boxed" in text or "fbox" in text:
        text = last_boxed(text) or text
    text = text.translate(_CHARACTERS).replace(r"\$", "\u00a4")
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) >= len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)].strip()
    text = text.replace("$", "\u00a4")
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    text = _THOUSANDS.sub(lambda match: match.group().replace(" ", ""), text)
    return text.strip().removesuffix(".").strip()


def flat(text: str) -> str:
    """A cleaned text without `\\text` and without spaces that separate nothing: what equal texts are compared by."""
    text = _TEXT.sub(r" \1 ", text)
    return _SPACE.sub("", " ".join(text.split()))


def split_name(text: str) -> tuple[str, str]:
    """`x = 5` gives ("x", "5"), `x \\in [1,2]` ("x", "[1,2]"); without a name, or with more equal signs, ("", text)."""
    match = _NAME.match(text)
    if match is None or "=" in text[match.end() :] or not text[match.end() :].strip():
        return "", text
    return match["name"], text[match.end() :].strip()


def is_prose(text: str) -> bool:
    """Whether it holds words that no mathematics is made of: such a text is right only as a text."""
    plain = _COMMAND.sub(" ", _TEXT.sub(r" \1 ", text))
    return plain.casefold().strip() == "no" or any(word.lower() not in _FUNCTIONS for word in _WORD.findall(plain))


@lru_cache(maxsize=1024)
def quantity(text: str) -> Quantity | None:
    """The number that a cleaned text is, with its unit: `5 \\text{ cm}`, `\\frac12`, `1 1/2`, `3\\times10^5`, `50%`."""
    if len(text) > MAX_DIGITS:
        return None
    body, unit = _split_unit(text)
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


def _split_unit(text: str) -> tuple[str, str]:
    sign, rest = (text[0], text[1:].lstrip()) if text[:1] in ("-", "+") else ("", text)
    if rest.startswith("\u00a4"):
        return sign + rest[1:].strip(), "$"
    for mark, unit in (("%", "%"), (r"^\circ", "deg"), ("\u00a4", "$")):
        if text.endswith(mark):
            return text[: -len(mark)].strip(), unit
    based = _BASE.fullmatch(text)
    if based is not None:
        return based["body"].strip(), f"base {based['base']}"
    return split_unit(text)


def split_unit(text: str) -> tuple[str, str]:
    """`6\\pi \\text{ cm}^2` gives ("6\\pi", "cm2"); without a unit that is written as a word, (text, "")."""
    for form in _WITH_UNIT:
        match = form.fullmatch(text)
        if match is None:
            continue
        name = match["unit"].strip().removesuffix(".")
        first, _, second = name.partition(" ")
        power = _POWERS.get(first.rstrip("."), "") if second else ""
        name = second if power else name
        unit = _UNITS.get(name) or _UNITS.get(name.lower(), "")
        if unit:
            return match["body"].strip(), unit + (power or (match["power"] or "").strip("^{} "))
    return text, ""
