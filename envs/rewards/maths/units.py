"""What stands behind a number: units of measurement under one name, and any other noun, `18 eggs`, as a unit too."""

from __future__ import annotations

import re
from functools import lru_cache

from envs.rewards.maths.measure import conversion_factor, parse_measure
from envs.rewards.maths.numerals import PARTS

_UNIT_NAMES = {
    "mm": "mm millimeter millimetre", "cm": "cm centimeter centimetre", "m": "m meter metre",
    "km": "km kilometer kilometre", "in": "in inch", "ft": "ft foot feet", "yd": "yd yard", "mi": "mi mile",
    "mg": "mg milligram", "g": "g gram", "kg": "kg kilogram", "lb": "lb lbs pound", "oz": "oz ounce", "t": "ton tonne",
    "s": "s sec second", "min": "min minute", "h": "h hr hrs hour", "day": "day", "week": "week", "month": "month",
    "year": "year yr yrs", "decade": "decade", "century": "century centuries", "pint": "pint", "cup": "cup",
    "l": "l L liter litre", "ml": "ml mL milliliter millilitre", "gal": "gal gallon",
    "quart": "quart qt",
    "$": "dollar usd \u00a4", "cent": "cent", "pence": "pence",
    "euro": "euro eur \u20ac", "pound sterling": "\u00a3 gbp",
    "rupee": "rupee rs Rs inr \u20b9", "yen": "yen jpy \u00a5", "deg": "deg degree", "rad": "rad radian",
    "yuan": "yuan rmb cny", "jiao": "jiao", "chf": "chf", "won": "won krw", "ruble": "ruble rub",
    "celsius": "celsius C", "fahrenheit": "fahrenheit F", "mi/h": "mph", "km/h": "kmh kmph kph", "unit": "unit",
    "am": "am", "pm": "pm",
    "atm": "atm atmosphere", "ha": "ha hectare",
    "N": "N newton", "J": "J joule", "W": "W watt", "V": "V volt", "A": "A ampere", "K": "K kelvin", "Hz": "Hz hertz",
    "person": "person people", "child": "child children", "man": "man men", "woman": "woman women",
}  # fmt: skip
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
# Words that say something else about the number than what is counted: `5 more than x`, `5 or 6`, `5 tenths`, `5 May`.
_OTHERWISE = """
    and or not no nor never neither either but if when where unless except than then thus so because since is are was
    were be isn't wrong incorrect more less fewer greater least most plus minus over under divided multiplied squared
    cubed factorial power powers base mod modulo remainder opposite opposites reciprocal reciprocals inverse inverses
    multiple multiples one two
    three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred hundreds thousand
    thousands million millions billion billions trillion trillions dozen dozens even odd prime positive negative
    real solution january february march april may june july august september october november december
    below above under short debt deficit loss owed owing negative behind mega kilo giga tera peta micro milli nano
    myriad tens gross score scores lakh lakhs crore crores
    sin cos tan cot csc sinh cosh tanh log ln exp gcd lcm max det th st nd rd choose pi sqrt frac
"""
_NO_NOUN = frozenset((*_OTHERWISE.split(), *PARTS))
_FIRST = frozenset(("to", "for", "from", "with", "by", "out", "at", "as", "the", "a", "an", "on", "times"))
_INSIDE = frozenset(("of", "in", "to", "at", "a", "on"))  # short words of a phrase
# A counted noun is in the plural: `7 apples`, but `7 double` and `7 overdrawn` say something else.
_MANY = re.compile(
    r"[a-z]s\b|[A-Z]{2}|\b(?:people|m[ei]n|women|children|feet|geese|mice|teeth|sheep|fish|deer|dice|oxen|cattle|data|criteria|vertices"
    r"|matrices|indices|aircraft|money|baht|pesos?|kron[ae]r?|dong|ringgit|yuan|won|water|candy|fruit|bacteria|maxima|minima|loci|foci)\b"
)
_SHARED = re.compile(r"^\s?of (?:the|an?|all|his|her|its|their) ")  # 1/2 of the cake
_WORDS = re.compile(r"[A-Za-z]+|[\u3400-\u9fff]+|\^\s?[23]|/")
_LETTERS = re.compile(r"[A-Za-z\u3400-\u9fff/ .^23-]{1,60}")

# One letter is a unit only inside \text: elsewhere it is a variable.
_TEXT_UNIT = re.compile(
    r"(?P<body>.*?\S)\s?\\text\s?\{\s?(?P<unit>[^{}]{1,60}?)\s?\}(?P<more>\s?/\s?\\text\s?\{\s?[^{}]{1,40}\})?"
    r"\.?\s?(?P<power>\^\s?\{?[23]\}?)?"
)
_BARE_UNIT = re.compile(
    r"(?P<body>.*?(?:[0-9.})]|\\pi(?=\s)))(?P<space>\s?)"
    r"(?P<unit>[A-Za-z][A-Za-z/ .-]{1,60}?)\s?(?P<power>\^\s?\{?[23]\}?)?"
)
_LONE = re.compile(r"(?P<body>.*[0-9}])\s(?P<unit>[A-Za-z])")
_NUMBER = re.compile(
    r"[+-]?\s?(?:[0-9.,]+|\\frac\s?\{\s?-?[0-9]+\s?\}\s?\{\s?[0-9]+\s?\})(?:\s?/\s?[0-9]+)?"
    r"(?:\s?(?:\\times|\\cdot|\*)\s?10\s?\^\s?\{?\s?[+-]?[0-9]{1,3}\s?\}?)?(?:\s?\\cdot(?![a-z]))?"
)
_SAYS_UNIT = re.compile(r"\\(?:text|Omega|mu|ohm|frac)(?![a-z])|\^\s?\{?\s?-")
_UNIT_ENDS = "})0123456789"
MAX_UNIT = 120  # characters of what stands behind the number
_UNIT_SPELLING = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\(?:Omega|ohm)(?![a-zA-Z])", "ohm"),
        (r"\\mu(?![a-zA-Z])\s?(?:\\text\s?\{\s?)?", "u"),
        (r"\\text\s?\{([^{}]*)\}", r" \1 "),
        (r"\^\s?\{\s?(-?)\s?([0-9])\s?\}", r"^\1\2"),
        (r"\\frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}", r"\1/(\2)"),
        (r"\\text(?![a-zA-Z])\s?|\\[cl]?dot(?![a-zA-Z])|\\times(?![a-zA-Z])|[.*{}]|\\ |\^\s?\{\s?\\text", " "),
        (r"(?<=[0-9a-zA-Z])\s*\^\s*(-?)\s*([0-9])", r"^\1\2"),
        (r"\b([GMkdcmunph])\s+ohm", r"\1ohm"),
    )
)
_TRIGONOMETRY = re.compile(r"sin|cos|tan|cot|sec|csc")
_SCALES = {"C": "celsius", "F": "fahrenheit"}  # or coulomb and farad: the other side tells
_CURRENCIES = "\u00a4\u20ac\u00a3\u20b9\u00a5"


def split_unit(text: str) -> tuple[str, str]:
    """`6\\pi \\text{ cm}^2` gives ("6\\pi", "cm2"), `\\$5` ("5", "$"), `18 eggs` ("18", "egg"); else (text, "")."""
    measured = _parse_measured(text)
    if measured is not None:
        return measured
    sign, unsigned = (text[0], text[1:].lstrip()) if text[:1] in ("-", "+") else ("", text)
    if unsigned[:1] and unsigned[0] in _CURRENCIES:
        body, unit = _split_words(unsigned[1:].strip())
        currency = _UNITS[unsigned[0]]
        same_currency = not unit or unit[0] == "/" or unit.partition("/")[0] == currency
        return (sign + body, currency + unit.removeprefix(currency)) if same_currency else (text, "")
    if text.endswith(r"^\circ") and not _TRIGONOMETRY.search(text):
        return text[: -len(r"^\circ")].strip(), "deg"
    if text[-1:] and text[-1] in _CURRENCIES:
        return text[:-1].strip(), _UNITS[text[-1]]
    return _split_words(text)


def _parse_measured(text: str) -> tuple[str, str] | None:
    """`6\\text{ m}\\cdot\\text{s}^{-1}` is ("6", "m s^-1"): a number and a product of units that have names."""
    if not text[-1:] or text[-1] not in _UNIT_ENDS and not text[-1].isalpha():
        return None
    match = _NUMBER.match(text)
    tail = text[match.end() :] if match is not None else ""
    if match is None or not tail or len(tail) > MAX_UNIT or not (_SAYS_UNIT.search(tail) or "/" in tail):
        return None
    for pattern, by in _UNIT_SPELLING:
        tail = pattern.sub(by, tail)
    if not tail.isascii() or not any(map(str.isalpha, tail)):
        return None
    unit = " ".join(tail.split())
    unit = _UNITS.get(unit, unit)
    if unit in ("C", "F") or parse_measure(unit) is None:
        return None
    return match.group().removesuffix(r"\cdot").strip(), unit


def _split_words(text: str) -> tuple[str, str]:
    if r"\text" in text:
        match = _TEXT_UNIT.fullmatch(text)
        if match is None:
            return text, ""
        more = (match["more"] or "").replace(r"\text", "").translate({ord("{"): " ", ord("}"): " "})
        unit = _normalize_unit(match["unit"] + more + _power_suffix(match["power"]), bare=False)
    else:
        match = _BARE_UNIT.fullmatch(text) if text[-1:].isalpha() or text[-2:-1] in "^{." else None
        if match is None:
            return text, ""
        unit = _normalize_unit(match["unit"] + _power_suffix(match["power"]), bare=True)
        if not match["space"] and match["unit"].lower() not in _UNITS:  # 5cm, but 3abc is a product
            unit = ""
    body = match["body"].strip()
    counts = any(letter.isdigit() for letter in body) or r"\pi" in body or unit in _UNIT_NAMES
    many = (
        body.lstrip("+-") == "1"
        or "frac" in body
        or "/" in unit
        or _MANY.search(match["unit"])
        or not match["unit"].isascii()
    )
    return (body, unit) if unit and counts and (many or unit in _UNIT_NAMES or _is_measurable(unit)) else (text, "")


def _is_measurable(unit: str) -> bool:
    return parse_measure(unit) is not None or any(_UNITS.get(word.rstrip("0123456789"), "") for word in unit.split())


def _power_suffix(marks: str | None) -> str:
    return "^" + marks.strip("^{} ") if marks else ""


@lru_cache(maxsize=1024)
def _normalize_unit(name: str, *, bare: bool) -> str:
    """`square inches` and `in^2` are in2, `miles per hour` and `mph` mi/h, `red balls` red ball; "" for no unit."""
    if not _LETTERS.fullmatch(name):
        return ""
    name = _SHARED.sub("", name)
    words: list[str] = []
    power_of_next = ""
    for word in _WORDS.findall(name.replace(".", " ").replace("-", " ")):
        low = word.lower()
        unit = _resolve_unit(word)
        if word[0] == "^" or (low in ("squared", "cubed") and words):
            words[-1:] = [last + _POWERS.get(low, word[-1]) for last in words[-1:]]
        elif low in _POWERS and not words and not power_of_next:
            power_of_next = _POWERS[low]
        elif low in ("per", "/"):
            words.append("/")
        elif (
            low in _NO_NOUN
            or (not words and low in _FIRST and not unit and len(name.split()) > 1)
            or (unit is None and len(word) < 3 and low not in _INSIDE and word.isascii())
            or (bare and len(word) == 1 and not words and "/" not in name)
        ):
            return ""
        else:
            words.append((unit or _singular(low)) + power_of_next)
            power_of_next = ""
    if name.strip() in _SCALES:
        return name.strip()
    return re.sub(" ?/ ?", "/", " ".join(words)) if words and words[-1] != "/" else ""


def _resolve_unit(word: str) -> str | None:
    """`Mm` is no mm and `H` no hour: another case is only another spelling where the word means nothing itself."""
    low = word.lower()
    loose = _UNITS.get(low) or _UNITS.get(_singular(low))
    exact = _UNITS.get(word)
    if exact is not None or (loose is not None and word == low):
        return exact or loose
    itself = parse_measure(word)
    return loose if itself is None or (loose is not None and parse_measure(loose) == itself) else word


def infer_unit(unit: str, text: str) -> str:
    """`5000 m` with `m` as text where the other side is in km: one letter is a unit when it measures the same thing."""
    match = _LONE.fullmatch(text)
    if match is None or conversion_factor(match["unit"], unit) is None:
        return text
    return rf"{match['body']}\text{{ {match['unit']} }}"


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("es") and word[:-2].endswith(("x", "s", "ch", "sh", "z")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def same_unit(unit: str, gold: str) -> bool:
    """Whether they may stand for each other: one of them left out, the same, or one with fewer adjectives."""
    if not unit or not gold or unit == gold or conversion_factor(unit, gold) == 1:
        return True
    if _SCALES.get(unit) == gold.removeprefix("deg ") or _SCALES.get(gold) == unit.removeprefix("deg "):
        return True
    if "$" in (unit, gold):  # 15 dollars per hour are $15
        return unit.partition("/")[0] == gold.partition("/")[0]
    if " of " in unit or " of " in gold:
        return unit.partition(" of ")[0] == gold or gold.partition(" of ")[0] == unit
    ours, theirs = set(unit.split()), set(gold.split())
    return ours < theirs or theirs < ours
