"""The verdicts that SWiRL's judge ends its text with."""

from __future__ import annotations

import re

_STEP = re.compile(r"\b(?:GOOD|BAD)\b")
_OUTCOME = re.compile(r"\b(?:YES|NO)\b")


def step_verdict(judgement: str) -> str | None:
    """The last whole word GOOD or BAD; None without one."""
    return _last(_STEP, judgement)


def outcome_verdict(judgement: str) -> str | None:
    """The last whole word YES or NO; None without one."""
    return _last(_OUTCOME, judgement)


def _last(words: re.Pattern[str], text: str) -> str | None:
    found: list[str] = words.findall(text)
    return found[-1] if found else None
