"""What a text says about a plan: valid, invalid, or nothing. Linear in the text, which a model wrote."""

from __future__ import annotations

import re

from envs.problems.blocks.words import STATEMENT

_VERDICT = re.compile(r"\b(in-?)?valid\b", re.IGNORECASE)
# A word of NO before it turns it round, a word of MAYBE takes it back; words of FILLER may stand between them.
_NO = re.compile(r"not|cannot|never|no|neither|nor|nothing|hardly|far|fail(?:s|ed)?|\w+n't")
_MAYBE = re.compile(r"would|could|might|may|if|whether")
_FILLER = re.compile(
    r"|an?|the|this|it|plan|above|is|be|been|being|have|to|as|called|considered|deemed|said"
    r"|about|from|longer|believe|say|see|that|think"
    r"|actually|completely|entirely|fully|necessarily|really|strictly"
)
_OR_BEFORE = re.compile(r"valid\W{0,4}(?:/|\bor)\W{0,4}$", re.IGNORECASE)
# What follows it: `: no`, `? No.`; `or not`, `/INVALID`, `if ...`.
_NO_AFTER = re.compile(r"\W{0,4}[:=?]\W{0,4}(?:no|false)\b[*_\"'` ]{0,4}(?:[.,;:!)\n]|$)", re.IGNORECASE)
_MAYBE_AFTER = re.compile(r"\W{0,4}(?:(?:only )?(?:if|unless)|(?:/|or)\W{0,4}(?:not|(?:in-?)?valid))\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.,;:!?\n]")
_NEAR = 80  # characters that are read before it and after it


def read_verdict(text: str) -> tuple[bool, tuple[int, int]] | None:
    """Whether a text calls the plan valid, and where: the last whole word `valid` or `invalid` that says so.

    `cannot be valid`, `isn't a valid plan` and `valid: no` are invalid. `valid or invalid`, `would be valid` and
    `valid if` say nothing. What stands after a `[STATEMENT]`, where the environment stops the model, does not count.
    """
    last = None
    for found in _VERDICT.finditer(text.partition(STATEMENT)[0]):
        said = _says(found)
        last = last if said is None else (said, found.span())
    return last


def _says(found: re.Match[str]) -> bool | None:
    """What one of the words says in its sentence; None where it is taken back."""
    text, (start, end) = found.string, found.span()
    before, after = text[max(0, start - _NEAR) : start], text[end : end + _NEAR]
    words = [word.strip("*_\"'`()") for word in _SENTENCE.split(before)[-1].lower().replace("’", "'").split()]
    while words and _FILLER.fullmatch(words[-1]):
        words.pop()
    word = words[-1] if words else ""
    if _MAYBE.fullmatch(word) or _OR_BEFORE.search(before) or _MAYBE_AFTER.match(after):
        return None
    if _NO.fullmatch(word) and words[-2:-1] in (["may"], ["might"]):
        return None
    turned = bool(_NO.fullmatch(word)) != bool(_NO_AFTER.match(after))
    return (found[1] is None) != turned
