"""Which of a few words a text ends on: yes or no, true or false, support or counter. Linear in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from envs.text.boxed import last_boxed_span

TAIL = 4_000  # characters that are read: what comes before is reasoning
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")
_TAG = re.compile(r"<answer>([^<]{0,80})</answer>", re.IGNORECASE)
_WORD = r"(?!true|false|untrue|support|counter)\w{1,12}"  # no other word of the same table
_NOT = rf"(?:\bnot|n't)\s(?:{_WORD}\s){{0,2}}"


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


def stated(text: str, words: Words) -> tuple[str, tuple[int, int]] | None:
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
    said = {str(match.lastgroup) for match in found}
    return (said.pop(), found[-1].span()) if len(said) == 1 else None
