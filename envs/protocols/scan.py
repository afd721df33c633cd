"""How tags are found in text that a model wrote.

The text is hostile: every search is a pass of `str.find` or `str.rfind`, linear in its length, and what stands between
the tags is kept as it is, stripped.
"""

from __future__ import annotations

from envs.protocols.record import Answer, Call, Malformed, Parsed

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


def answer(text: str) -> str | None:
    """The last answer of a message; an empty tag is the answer "", no complete tag is None."""
    return last_between(text, ANSWER_OPEN, ANSWER_CLOSE)


def one_answer(text: str) -> bool:
    """Whether a message holds exactly one answer tag, opened and closed once, in that order."""
    return text.count(ANSWER_OPEN) == 1 == text.count(ANSWER_CLOSE) and answer(text) is not None


def parse_answer(text: str) -> Parsed:
    """The last answer, where there is no call to look for."""
    given = answer(text)
    return Malformed() if given is None else Answer(given)


def parse_first(text: str, opening: str, closing: str) -> Parsed:
    """Whichever of a call and an answer is complete first. What stands behind the first `closing`, else behind the
    first `</answer>`, is not looked at: Search-R1, ICRL and O2-Searcher generate first and then cut there."""
    tag = closing if closing in text else ANSWER_CLOSE
    before, found, _ = text.partition(tag)
    text = before + found
    call, given = first_between(text, opening, closing), first_between(text, ANSWER_OPEN, ANSWER_CLOSE)
    if given is not None and (call is None or text.find(ANSWER_OPEN) < text.find(opening)):
        return Answer(given, with_call=call is not None)
    return Malformed() if call is None else Call(call)


def parse_tags(text: str, opening: str, closing: str) -> Parsed:
    """The last answer, else the first call between two tags."""
    given, call = answer(text), first_between(text, opening, closing)
    if given is not None:
        return Answer(given, with_call=call is not None)
    return Malformed() if call is None else Call(call)
