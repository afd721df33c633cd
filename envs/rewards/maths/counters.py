"""The letter that counts the members of a family: in `2k\\pi, k \\in \\mathbb{Z}` another one will do."""

from __future__ import annotations

import re

from envs.rewards.maths.text import flatten

_COUNTER = re.compile(r"(?<![A-Za-z\\])[kmn](?![A-Za-z])")
_CLAUSE = re.compile(r"\\?[A-Za-z]+(?:\{Z\})?|\S")
_CLAUSE_WORD = re.compile(
    r"\\in|Z|\\mathbb\{Z\}|\\forall|[,()|:]|in|where|for|with|and|any|all|every|some|each|is|are|an|arbitrary|integers?"
)


def rename_counter(answer: str, gold: str) -> tuple[str, str]:
    """Without `k \\in \\mathbb{Z}` behind them, and with the letter of `gold` in `answer`, where one of them says that
    its letter stands for any integer."""
    if not any(mark in text for mark in ("integer", "Z") for text in (answer, gold)):
        return answer, gold
    (value, letter), (target, gold_letter) = _split_counter(answer), _split_counter(gold)
    if not letter and not gold_letter:
        return answer, gold
    ours, theirs = set(_COUNTER.findall(value)), set(_COUNTER.findall(target))
    if len(ours) == len(theirs) == 1:
        value = _COUNTER.sub(theirs.pop(), value)
    return value, target


def _split_counter(text: str) -> tuple[str, str]:
    """`2k\\pi, k \\in \\mathbb{Z}` gives ("2k\\pi", "k"), a text without the clause (text, "")."""
    if "integer" not in text and "Z" not in text:
        return text, ""
    words = flatten(text)
    if words.startswith(r"\{") and words.endswith(r"\}"):
        words = words[2:-2]
    tokens = list(_CLAUSE.finditer(words))
    letter, at, mark = "", len(words), False
    for token in reversed(tokens):
        word = token.group()
        if not letter and word in ("k", "m", "n"):
            letter = word
        elif _CLAUSE_WORD.fullmatch(word) is None or (word == ")" and token.end() != len(words)):
            break
        mark = mark or word[:7] == "integer" or "Z" in word
        at = token.start()
    return (words[:at].strip(), letter) if letter and mark and at else (text, "")
