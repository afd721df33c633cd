"""How tags are found in text that a model wrote.

The text is hostile: every search is a pass of `str.find` or `str.rfind`, linear in its length, and what stands between
the tags is kept as it is, stripped.
"""

from __future__ import annotations


def first_between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the first `opening` and the next `closing`; None without such a pair."""
    start = text.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = text.find(closing, start)
    return None if end < 0 else text[start:end].strip()


def last_between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the last `closing` with an `opening` before it and the nearest such `opening`."""
    first = text.find(opening)
    end = text.rfind(closing)
    if first < 0 or end < first + len(opening):
        return None
    start = text.rfind(opening, 0, end) + len(opening)
    return text[start:end].strip()
