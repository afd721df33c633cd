"""Which option of a multiple-choice question a text names, and which of a few words it ends on.

Such words are yes or no, true or false, support or counter. Linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from envs.text.words import last_boxed_span, last_boxed_spans, normalize_answer

LAST_WORDS = 400  # characters of the last line that are read as the last sentence

_BOLD = re.compile(r"\*\*\s{0,3}\(?([A-Z])\)?[.:)]?\s{0,3}\*\*")
_ANSWER_IS = re.compile(r"(?i:\banswer)(?i:\s{1,3}is\s{0,3}:?|\s{0,3}[:=])\s{0,3}(?i:option\s{1,3})?\(?([A-Z])\b(?!')")
_ALONE = re.compile(r"(?<![\w'])([A-Z])(?![\w'])")
_ARTICLE = re.compile(r"\s+(?!(?:is|was|or|and|nor)\b)[a-z]")
_OR = re.compile(r"[\s*)(.]{0,6}(?:or|and|/|,)[\s*(]{1,6}([A-Z])\b(?!')")
_WHOLE = re.compile(r"(?i:option\s{1,3})?\(?([A-Za-z])\)?(?:\s{0,3}[.:)].*)?", re.DOTALL)
_MARKS = re.compile(r"\\text\{|[*{}$]")

TAIL = 4_000  # characters that are read: what comes before is reasoning
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")
_TAG = re.compile(r"<answer>([^<]{0,80})</answer>", re.IGNORECASE)
_WORD = r"(?!true|false|untrue|support|counter)\w{1,12}"  # no other word of the same table
_NOT = rf"(?:\bnot|n't)\s(?:{_WORD}\s){{0,2}}"


def find_named(content: str, options: Mapping[str, str]) -> str | None:
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
    boxes = last_boxed_spans(text)
    if boxes:
        named = {find_named(text[start:end], options) for start, end in boxes}
        return named.pop() if len(named) == 1 else None, boxes[-1]
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
    """Whether another option follows, as in `A or B`."""
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


@dataclass(frozen=True, slots=True)
class Words:
    """By the word that is meant, what says it. Where two begin at the same place the first of the table counts."""

    forms: Mapping[str, str]

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{word}>{form})" for word, form in self.forms.items()), re.IGNORECASE)


END = r"(?=\W{0,3}(?:[.,;:!?*\"')\n]|$))"  # `no.` answers, `no evidence` does not
YES_NO = Words({"yes": r"\byes\b", "no": rf"\bno\b{END}"})
TRUE_FALSE = Words({"false": rf"{_NOT}true\b|\bfalse\b|\buntrue\b", "true": rf"{_NOT}(?:false|untrue)\b|\btrue\b"})
STANCE = Words(
    {
        "counter": rf"{_NOT}support\w{{0,3}}\b|\bcounter\w{{0,3}}\b",
        "support": rf"{_NOT}counter\w{{0,3}}\b|\bsupport\w{{0,3}}\b",
    }
)


def find_stated(text: str, words: Words) -> tuple[str, tuple[int, int]] | None:
    """The word that a text says, and where.

    The first of these that is there decides, and says nothing where it says two: the last answer tag, the last box, the
    last sentence in which one of the words stands.
    """
    pattern = words.pattern
    tags = list(_TAG.finditer(text[-TAIL:]))
    box = last_boxed_span(text)
    if tags or box:
        offset = max(0, len(text) - TAIL)
        start, end = (offset + tags[-1].start(1), offset + tags[-1].end(1)) if tags else box or (0, 0)
        return _only(pattern, text, start, end)
    begin = max(0, len(text) - TAIL)
    for sentence in reversed(list(_SENTENCE.finditer(text, begin))):
        if pattern.search(text, sentence.start(), sentence.end()):
            return _only(pattern, text, sentence.start(), sentence.end())
    return None


def _only(pattern: re.Pattern[str], text: str, start: int, end: int) -> tuple[str, tuple[int, int]] | None:
    found = list(pattern.finditer(text, start, end))
    named = {str(match.lastgroup) for match in found}
    return (named.pop(), found[-1].span()) if len(named) == 1 else None
