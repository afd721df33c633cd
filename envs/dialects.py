"""The tags that a model writes, and how they are found in its text.

A message is hostile: every search here is one `str.find` pass, linear in its length, and keeps what stands between the
tags as it is, stripped.
"""

from __future__ import annotations

MATH_OPEN, MATH_CLOSE = "<math_exp>", "</math_exp>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"


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


def math_call(text: str) -> str | None:
    """The first calculator call of a message: `<math_exp>48 / 2</math_exp>` gives `48 / 2`."""
    return first_between(text, MATH_OPEN, MATH_CLOSE)


def answer(text: str) -> str | None:
    """The last answer of a message; an empty tag is the answer "", no complete tag is None."""
    return last_between(text, ANSWER_OPEN, ANSWER_CLOSE)


def one_answer(text: str) -> bool:
    """Whether a message holds exactly one answer tag, opened and closed once, in that order."""
    return text.count(ANSWER_OPEN) == 1 == text.count(ANSWER_CLOSE) and answer(text) is not None


def write_math_call(expression: str) -> str:
    return f"{MATH_OPEN}{expression}{MATH_CLOSE}"


def write_answer(text: str) -> str:
    return f"{ANSWER_OPEN}{text}{ANSWER_CLOSE}"


def tool_reply(query: str, result: str, *, max_query: int = 512) -> str:
    """SWiRL's form of a tool's answer: `48 / 2 -> 24.0`. A longer query is cut, so that the context cannot double."""
    shown = query if len(query) <= max_query else query[:max_query] + "..."
    return f"{shown} -> {result}"
