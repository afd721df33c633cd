"""Numbers that are not decimal digits.

In English words: `twenty-three` is 23, `minus two thirds` -2/3, `ten apples` 10 apples. In another base: `1101_2`,
`(1101)_{two}`, `0b1101` and `1101 (base 2)` are one; `1101` will do.
"""

from __future__ import annotations

import re

_SMALL = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = """
    zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
    fifteenth sixteenth seventeenth eighteenth nineteenth twentieth
"""
_CARDINAL = {word: at for at, word in enumerate(_SMALL.split())} | {
    word: 10 * at for at, word in enumerate(_TENS.split(), 2)
}
_ORDINAL = {word: at for at, word in enumerate(_ORDINALS.split())} | {
    f"{word[:-1]}ieth": value for word, value in _CARDINAL.items() if value in range(20, 100, 10)
}
_MULTIPLES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
PARTS = {word: value for word, value in _ORDINAL.items() if value > 2} | {"half": 2, "quarter": 4}
PARTS |= {f"{word}th": value for word, value in _MULTIPLES.items()}
PARTS |= {f"{word}s": value for word, value in PARTS.items()} | {"halves": 2}
_NUMBER_WORDS = frozenset((*_CARDINAL, *_MULTIPLES))
_BEGINS = re.compile(
    r"(?:minus|negative|a|an|[a-z]*(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|teen|ty|zero))\b",
    re.I,
)
_TH = re.compile(r"([0-9]{1,6})\s?(?:\^\s?\{?)?\s?(?:st|nd|rd|th)\b\}?", re.I)
_MIXED = re.compile(r"([+-]?[0-9]{1,9}) and (?:a|an|one) ([a-z]+)\.?", re.I)
_SOME_PARTS = re.compile(r"([+-]?[0-9]{1,9})[ -]([a-z]+)\.?", re.I)
_WORDS = re.compile(r"[A-Za-z]+")
_HALF = re.compile(r"half(?:$|\.$| of )", re.I)
_WHOLE = frozenset(("the", "a", "an", "all", "his", "her", "its", "their"))
_NOT_THEN = frozenset(
    ("or", "and", "to", "less", "more", "times", "of", "point", "than", "plus", "minus", "is", "by", "over", "if")
)
MAX_WORDS = 12
_BASE = r"\(?(?:(?:\\text\s?\{)?\s?(?:in )?base\s?\}?\s?)?(?:\\text\s?\{)?\s?(?P<base>[0-9]{1,2}|[a-z]{3,8})\s?\}?\)?"
_FORMS = (
    re.compile(rf"\(?\s?(?:\\text\s?\{{)?(?P<digits>[0-9A-Za-z]{{1,64}})\}}?\s?\)?\s?_\s?\{{?\s?{_BASE}\s?\}}?"),
    re.compile(rf"(?P<digits>[0-9A-Z]{{1,64}})\s?(?:\\text\s?\{{)?\s?\(?(?:in )?base\s?\}}?\s?{_BASE}\s?\)?"),
)
_NAMED_BASE = re.compile(r"\bbase[\s$-]{1,3}(?:\\text\s?\{)?([0-9]{1,2}|[a-z]{3,8})", re.I)
_BASE_WORDS = {2: ("binary",), 8: ("octal",), 16: ("hexadecimal",)}
_PREFIXED = re.compile(r"0(?P<mark>[xXbBoO])(?P<digits>[0-9A-Fa-f]{1,64})")
_MARKS = {"x": 16, "b": 2, "o": 8}
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def write_in_digits(text: str) -> str:
    """A text that begins with a number in words, or is `5 sevenths`, with that number in digits; any other as it is."""
    if len(text) > 100:
        return text
    phrase = _SOME_PARTS.fullmatch(text)
    if phrase is not None and phrase[2].lower() in PARTS and (phrase[1].lstrip("+-") == "1" or phrase[2][-1] in "sS"):
        return rf"\frac{{{phrase[1]}}}{{{PARTS[phrase[2].lower()]}}}"
    mixed = _MIXED.fullmatch(text)
    if mixed is not None and mixed[2].lower() in PARTS:
        return rf"{mixed[1]}\frac{{1}}{{{PARTS[mixed[2].lower()]}}}"
    if _HALF.match(text) is not None:
        text = f"one {text}"
    if _BEGINS.match(text) is None:
        return text
    words = [(match.group().lower(), match.end()) for match in _WORDS.finditer(text)][: MAX_WORDS + 1]
    if re.search(r"[^A-Za-z .-]", text) or len(words) > MAX_WORDS:
        return text
    names = [word for word, _ in words]
    sign = ""
    if names[0] in ("minus", "negative"):
        sign, names, words = "-", names[1:], words[1:]
    used = _count_number_words(names)
    if used == 0:
        return text
    value, rest = _parse_cardinal(names[:used]), names[used:]
    if value is None:
        return text
    below, more = 1, rest[1:]
    length = _count_number_words(more) if rest[:1] == ["and"] else 0
    if length and more[length : length + 1] and more[length] in PARTS:  # two and a half
        above, parts = _parse_cardinal(more[:length]), PARTS[more[length]]
        if above is None or above >= parts:
            return text
        value, below, used, rest = value * parts + above, parts, used + length + 2, more[length + 1 :]
    elif rest and rest[0] in PARTS:
        below, used, rest = PARTS[rest[0]], used + 1, rest[1:]
    if below > 1 and rest[:1] == ["of"] and rest[1:2] and rest[1] in _WHOLE:
        rest = rest[1:]
    if rest and (rest[0] in _NOT_THEN or rest[0] in _NUMBER_WORDS or rest[0] in _ORDINAL or len(rest) > 3):
        return text
    number = str(value) if below == 1 else rf"\frac{{{value}}}{{{below}}}"
    return sign + number + text[words[used - 1][1] :].rstrip(".")


def parse_ordinal(text: str) -> int | None:
    """`3rd`, `3^{rd}` and `third` are 3; None for all else."""
    match = _TH.fullmatch(text)
    if match is not None:
        return int(match[1])
    words = text.lower().replace("-", " ").split()
    if len(words) == 2 and words[0] in _TENS.split() and 0 < _ORDINAL.get(words[1], 0) < 10:
        return _CARDINAL[words[0]] + _ORDINAL[words[1]]
    return _ORDINAL.get(words[0]) if len(words) == 1 else None


def _count_number_words(names: list[str]) -> int:
    """How many words the number takes: `one hundred and five apples` four of them."""
    used = 0
    for at, name in enumerate(names):
        if name in _NUMBER_WORDS or (
            at == 0 and name in ("a", "an") and names[1:2] and names[1] in (*_MULTIPLES, *PARTS)
        ):
            used = at + 1
        elif not (name == "and" and used == at and names[at - 1 : at] and names[at - 1] in _MULTIPLES):
            break
    return used


def _parse_cardinal(names: list[str]) -> int | None:
    total = current = 0
    last = 10**15
    for name in names:
        if name in _MULTIPLES and name != "hundred":
            if _MULTIPLES[name] >= last:
                return None
            last = _MULTIPLES[name]
            total, current = total + (current or 1) * last, 0
        elif name == "hundred":
            if current >= 100:
                return None
            current = (current or 1) * 100
        elif name != "and":
            value = 1 if name in ("a", "an") else _CARDINAL[name]
            room = 100 if current % 100 == 0 and current else 10 if current % 100 >= 20 and current % 10 == 0 else 0
            if current and not value < room:
                return None
            current += value
    return total + current


def parse_based(text: str) -> tuple[str, int] | None:
    """`2a_{16}` is ("2A", 16); None for what has no base, and where a digit is not below it."""
    match = _PREFIXED.fullmatch(text)
    if match is not None:
        return _check_digits(match["digits"], _MARKS[match["mark"].lower()])
    for form in _FORMS if "_" in text or "base" in text else ():
        match = form.fullmatch(text)
        if match is not None:
            base = write_in_digits(match["base"])
            return _check_digits(match["digits"], int(base)) if base.isdigit() else None
    return None


def same_based(answer: str, gold: str) -> bool | None:
    """Whether they are the same digits, and the same base, which may be left out of `answer` alone; None where neither
    names one."""
    ours, theirs = parse_based(answer), parse_based(gold)
    if ours is None and theirs is None:
        return None
    if ours is not None and theirs is not None:
        return ours == theirs
    if theirs is None:  # a base that no key names is another number, unless its digits are no decimal ones
        return ours is not None and ours[0] == gold.upper() and (ours[1] == 10 or not gold.isdecimal())
    digits = re.sub(r"\\text\s?\{(.*)\}", r"\1", answer).strip("() ").upper()
    return digits.lstrip("0") == theirs[0].lstrip("0")


def is_in_asked_base(answer: str, gold: str, question: str) -> bool:
    """Whether `answer` is `2516_8` for 2516, and the question names that base."""
    ours = parse_based(answer)
    if ours is None or ours[0] != gold.upper():
        return False
    bases = {write_in_digits(name) for name in _NAMED_BASE.findall(question)}
    return str(ours[1]) in bases or any(word in question.lower() for word in _BASE_WORDS.get(ours[1], ()))


def _check_digits(digits: str, base: int) -> tuple[str, int] | None:
    """Letters by themselves are a name: `a_{12}` is a member of a sequence."""
    digits = digits.upper()
    if not 2 <= base <= 36 or any(_DIGITS.index(digit) >= base for digit in digits):
        return None
    return (
        (digits.lstrip("0") or "0", base) if any(map(str.isdigit, digits)) or base == 16 and len(digits) > 1 else None
    )
