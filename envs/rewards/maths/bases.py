"""Numbers in another base: `1101_2`, `(1101)_{two}`, `0b1101` and `1101 (base 2)` are one; `1101` will do."""

from __future__ import annotations

import re

from envs.rewards.maths.numerals import in_digits

_BASE = r"\(?(?:(?:\\text\s?\{)?\s?(?:in )?base\s?\}?\s?)?(?:\\text\s?\{)?\s?(?P<base>[0-9]{1,2}|[a-z]{3,8})\s?\}?\)?"
_FORMS = (
    re.compile(rf"\(?\s?(?:\\text\s?\{{)?(?P<digits>[0-9A-Za-z]{{1,64}})\}}?\s?\)?\s?_\s?\{{?\s?{_BASE}\s?\}}?"),
    re.compile(rf"(?P<digits>[0-9A-Z]{{1,64}})\s?(?:\\text\s?\{{)?\s?\(?(?:in )?base\s?\}}?\s?{_BASE}\s?\)?"),
)
_PREFIXED = re.compile(r"0(?P<mark>[xXbBoO])(?P<digits>[0-9A-Fa-f]{1,64})")
_MARKS = {"x": 16, "b": 2, "o": 8}
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def based(text: str) -> tuple[str, int] | None:
    """`2a_{16}` is ("2A", 16); None for what has no base, and where a digit is not below it."""
    match = _PREFIXED.fullmatch(text)
    if match is not None:
        return _valid(match["digits"], _MARKS[match["mark"].lower()])
    for form in _FORMS if "_" in text or "base" in text else ():
        match = form.fullmatch(text)
        if match is not None:
            base = in_digits(match["base"])
            return _valid(match["digits"], int(base)) if base.isdigit() else None
    return None


def same_based(given: str, gold: str) -> bool | None:
    """Whether they are the same digits, and the same base where both name one; None where neither does."""
    ours, theirs = based(given), based(gold)
    if ours is None and theirs is None:
        return None
    if ours is not None and theirs is not None:
        return ours == theirs
    known, other = (ours, gold) if ours is not None else (theirs, given)
    digits = re.sub(r"\\text\s?\{(.*)\}", r"\1", other).strip("() ").upper()
    return known is not None and digits.lstrip("0") == known[0].lstrip("0")


def _valid(digits: str, base: int) -> tuple[str, int] | None:
    """Letters by themselves are a name: `a_{12}` is a member of a sequence."""
    digits = digits.upper()
    if not 2 <= base <= 36 or any(_DIGITS.index(digit) >= base for digit in digits):
        return None
    return (
        (digits.lstrip("0") or "0", base) if any(map(str.isdigit, digits)) or base == 16 and len(digits) > 1 else None
    )
