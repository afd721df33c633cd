"""What short texts say: an answer as words, a number, the verdict that SWiRL's judge ends on."""

from __future__ import annotations

import re
import string
from fractions import Fraction

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
MAX_NUMBER = 64  # characters; a longer text is no number
# Three exponent digits keep the exact value small; [0-9], for \d accepts digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_STEP = re.compile(r"\b(?:GOOD|BAD)\b")
_OUTCOME = re.compile(r"\b(?:YES|NO)\b")


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without a, an and the, single spaces: `The  Cat!` gives `cat`."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def without_marks(text: str) -> str:
    """Lower case, without ASCII punctuation, single spaces: `The  Cat!` gives `the cat`."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


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


def step_verdict(judgement: str) -> str | None:
    """The last whole word GOOD or BAD; None without one."""
    return _last(_STEP, judgement)


def outcome_verdict(judgement: str) -> str | None:
    """The last whole word YES or NO; None without one."""
    return _last(_OUTCOME, judgement)


def _last(words: re.Pattern[str], text: str) -> str | None:
    found: list[str] = words.findall(text)
    return found[-1] if found else None
