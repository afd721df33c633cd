"""Answers that are words: choices under their letter, yes and true, sentences under one spelling."""

from __future__ import annotations

import re

from envs.rewards.maths.numerals import parse_ordinal
from envs.rewards.maths.text import flatten, is_prose

# B, (B), [B], B), B., Option B, (B) 12, B: 12
_CHOICE = re.compile(
    r"(?P<word>(?:option|choice|answer)\s?:?\s?)?"
    r"(?:[(\[]\s?(?P<inside>[A-J])\s?[)\]]|(?P<letter>[A-J])(?P<mark>\s?\)|[.:](?=\s|$))?)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_CHOICES = re.compile(r"(?:\([A-H]\)|[A-H])(?:(?:\s?,)?\s?(?:\([A-H]\)|[A-H])){1,7}")
_CAPITAL = re.compile(r"[A-H]")
_NO_REST = re.compile(r"[(^_+\-*/=<>!,&|']|(?:and|or|[A-J])\b", re.IGNORECASE)
_TEXT = re.compile(r"\\text\s?\{([^{}]*)\}")
_PUNCTUATION = re.compile(r"(?<![0-9])[.,!?;:'\"]|[.,!?;:'\"](?![0-9])")

_TRUTHS = dict.fromkeys(("yes", "true", "correct", "\u662f", "\u662f\u7684", "\u5bf9", "\u6b63\u786e"), True)
_TRUTHS |= dict.fromkeys(
    ("no", "false", "incorrect", "\u5426", "\u4e0d\u662f", "\u4e0d\u5bf9", "\u9519", "\u9519\u8bef"), False
)
_CLAUSE_END = re.compile(r"[,.;:!]|\s?[-\u2014]+\s?")
_DENIED = re.compile(r"\b(?:not|never|cannot|no|false|incorrect)\b|n't\b")
_UNSURE = re.compile(r"\b(?:or|but|yes|true|maybe|if|unless|except|however|sometimes)\b")
_SUBJECT = re.compile(r"^(?:it|this|they|he|she)(?: is| are| was| were|'s) ")
_ARTICLE = re.compile(r"^(?:the|an?) (?=\w\w)")

_SAID = re.compile(
    r"(?:(?:so|thus|therefore|hence),? ?)?(?:it's (?P<it>[^ ]+.*)|(?:it|this|that|they|he|she|there|[a-z](?:\([a-z]\))?"
    r"|(?:the|its|their) [a-z' -]{1,40}?)(?: |(?<=\)))"
    r"(?:(?:is|are|was|were|equals)(?: equal to)? ?(?P<what>.+)|(?P<verb>[a-z]{2,20}s)))",
    re.IGNORECASE | re.DOTALL,
)


def extract_statement(text: str) -> str:
    """What a sentence says of its subject: `The function is odd` gives "odd", `It diverges` "diverges"; "" for none."""
    match = _SAID.fullmatch(flatten(text).strip(" .!")) if len(text) < 200 else None
    return (match["it"] or match["what"] or match["verb"]) if match is not None else ""


def parse_choice(text: str) -> tuple[str, bool] | None:
    """The letter of a choice, and whether it is marked as one: `(B) 12` is ("B", True), `B` ("B", False)."""
    match = _CHOICE.fullmatch(" ".join(_TEXT.sub(r" \1 ", text).split()))
    if match is None:
        return None
    letter, rest = match["inside"] or match["letter"], match["rest"]
    marked = bool(match["word"] or match["inside"] or match["mark"])
    if rest and (match["word"] or not marked or letter.islower() or rest[0] != " " or _NO_REST.match(rest.strip())):
        return None
    return (letter.upper(), marked) if marked or letter.isupper() else None


def same_choices(answer: str, gold: str) -> bool | None:
    """Several choices, of which one side parts the letters: `A, C` is AC; None where it takes other rules."""
    ours, theirs = _CHOICES.fullmatch(answer), _CHOICES.fullmatch(gold)
    if ours is None or theirs is None or not ("," in answer or "," in gold):
        return None
    return sorted(_CAPITAL.findall(answer)) == sorted(_CAPITAL.findall(gold))


def parse_truth(text: str) -> bool | None:
    """`Yes`, `True.`, `correct` and `Yes, it converges` are True, `No, it does not` is False; None for all else."""
    words = _SUBJECT.sub("", flatten(text).casefold().strip(" .!"))
    first, *more = _CLAUSE_END.split(words, maxsplit=1)
    value, rest = _TRUTHS.get(first.strip()), more[0] if more else ""
    return None if _UNSURE.search(rest) or (value and _DENIED.search(rest)) else value


def same_words(answer: str, gold: str) -> bool:
    """Whether two texts, one of them prose, are the same but for case and punctuation."""
    place = parse_ordinal(flatten(gold))
    if place is not None and parse_ordinal(flatten(answer)) == place:
        return True
    if not (is_prose(answer) or is_prose(gold)):
        return False
    right = parse_truth(gold)
    if right is not None and parse_truth(answer) is right:
        return True
    return _normalize_words(answer) == _normalize_words(gold)


def _normalize_words(text: str) -> str:
    words = " ".join(_PUNCTUATION.sub(" ", flatten(text)).casefold().split())
    return _ARTICLE.sub("", _SUBJECT.sub("", words)) or words
