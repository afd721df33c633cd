"""Which option of a multiple-choice question a text names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envs.text.boxed import last_boxed_span
from envs.text.words import normalize_answer

LAST_WORDS = 400  # characters of the last line that are read as the last sentence

_BOLD = re.compile(r"\*\*\s{0,3}\(?([A-Z])\)?[.:)]?\s{0,3}\*\*")
_ANSWER_IS = re.compile(r"(?i:\banswer)(?i:\s{1,3}is\s{0,3}:?|\s{0,3}[:=])\s{0,3}(?i:option\s{1,3})?\(?([A-Z])\b(?!')")
_ALONE = re.compile(r"(?<![\w'])([A-Z])(?![\w'])")
_ARTICLE = re.compile(r"\s+(?!(?:is|was|or|and|nor)\b)[a-z]")
_OR = re.compile(r"[\s*)(.]{0,6}(?:or|and|/|,)[\s*(]{1,6}([A-Z])\b(?!')")
_WHOLE = re.compile(r"(?i:option\s{1,3})?\(?([A-Za-z])\)?(?:\s{0,3}[.:)].*)?", re.DOTALL)
_MARKS = re.compile(r"\\text\{|[*{}$]")


def named(content: str, options: Mapping[str, str]) -> str | None:
    """The option that a short text names: `B`, `(b)`, `B. Paris`, or `Paris` where just one option says so."""
    content = content.strip()
    whole = _WHOLE.fullmatch(_MARKS.sub("", content[:LAST_WORDS]).strip())
    if whole and whole[1].upper() in options:
        return whole[1].upper()
    key = normalize_answer(content)
    same = [letter for letter, text in options.items() if key and normalize_answer(text) == key]
    return same[0] if len(same) == 1 else None


def letter_in(text: str, options: Mapping[str, str]) -> tuple[str | None, tuple[int, int] | None]:
    """The letter that a text ends on, and where it stands.

    The first of these that is there decides, and says nothing when it names no option, or two: the last box, the last
    **B**, the last "answer is B", the only letter in the last sentence.
    """
    box = last_boxed_span(text)
    if box is not None:
        return named(text[box[0] : box[1]], options), box
    for pattern in (_BOLD, _ANSWER_IS):
        matches = [each for each in pattern.finditer(text) if each[1] in options and not _is_article(each)]
        if matches:
            hedged = any(_names_another(match, options) for match in matches[-2:])
            return None if hedged else matches[-1][1], matches[-1].span(1)
    alone = list(_last_letters(text, options))
    if len({match[1] for match in alone}) != 1:
        return None, None
    return alone[-1][1], alone[-1].span(1)


def _names_another(match: re.Match[str], options: Mapping[str, str]) -> bool:
    """Whether it goes on like `A or B`."""
    other = _OR.match(match.string, match.end(1))
    return other is not None and other[1] in options and other[1] != match[1]


def _last_letters(text: str, options: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """Letters of options that stand alone in the last sentence; an A before a small word is an article."""
    end = len(text.rstrip())
    start = max(text.rfind("\n", 0, end) + 1, end - LAST_WORDS)
    for mark in (". ", "! ", "? "):
        stop = text.rfind(mark, start, end)
        if text[start : max(start, stop)].strip("*( ") not in options:  # the line `B. Paris` is one sentence
            start = max(start, stop + 1)
    for match in _ALONE.finditer(text, start, end):
        if match[1] in options and not _is_article(match):
            yield match


def _is_article(match: re.Match[str]) -> bool:
    return match[1] == "A" and _ARTICLE.match(match.string, match.end(1)) is not None
