"""Answers that are words: choices under their letter, dates and sentences under one spelling."""

from __future__ import annotations

import re

from envs.rewards.maths.text import flat, is_prose

# B, (B), [B], B), B., Option B, (B) 12, B: 12
_CHOICE = re.compile(
    r"(?P<word>(?:option|choice|answer)\s?:?\s?)?"
    r"(?:[(\[]\s?(?P<inside>[A-J])\s?[)\]]|(?P<letter>[A-J])(?P<mark>\s?\)|[.:](?=\s|$))?)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_REST = re.compile(r"[(^_+\-*/=<>!,&|']|(?:and|or|[A-J])\b", re.IGNORECASE)
_YEAR = "january february march april may june july august september october november december"
_MONTHS = _YEAR.split()
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if len(month) > 3 else month for month in _MONTHS)
_DATES = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?P<month>{_MONTH})\.? (?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?(?:[, ]+(?P<year>[0-9]{{4}}))?",
        rf"(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\.?(?:[, ]+(?P<year>[0-9]{{4}}))?",
    )
)
_TEXT = re.compile(r"\\text\s?\{([^{}]*)\}")
_PUNCTUATION = re.compile(r"(?<![0-9])[.,!?;:'\"]|[.,!?;:'\"](?![0-9])")


def choice(text: str) -> tuple[str, bool] | None:
    """The letter of a choice, and whether it is marked as one: `(B) 12` is ("B", True), `B` ("B", False)."""
    match = _CHOICE.fullmatch(" ".join(_TEXT.sub(r" \1 ", text).split()))
    if match is None:
        return None
    letter, rest = match["inside"] or match["letter"], match["rest"]
    marked = bool(match["word"] or match["inside"] or match["mark"])
    if rest and (match["word"] or not marked or letter.islower() or rest[0] != " " or _NO_REST.match(rest.strip())):
        return None
    return (letter.upper(), marked) if marked or letter.isupper() else None


def date(text: str) -> tuple[int, int, str] | None:
    """`July 4, 1776` and `4 July 1776` are (7, 4, "1776")."""
    words = flat(text)
    for form in _DATES:
        match = form.fullmatch(words)
        if match is not None:
            month = next(at for at, name in enumerate(_MONTHS) if name.startswith(match["month"][:3].lower()))
            return month + 1, int(match["day"]), match["year"] or ""
    return None


def same_words(given: str, gold: str) -> bool:
    """Whether two texts, one of them prose, are the same but for case and punctuation."""
    if not (is_prose(given) or is_prose(gold)):
        return False
    return _spelled(given) == _spelled(gold)


def _spelled(text: str) -> str:
    return " ".join(_PUNCTUATION.sub(" ", flat(text)).casefold().split())
