"""Verdicts of three values: True, False, and None where only algebra can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Verdict = bool | None
T = TypeVar("T")


def match_members(answers: Sequence[T], golds: Sequence[T], same: Callable[[T, T], Verdict]) -> Verdict:
    """Whether each given member has a gold one for itself: `1, 1, 2` is not `1, 2, 2`."""
    unmatched = list(range(len(golds)))
    unknown = False
    for answer in answers:
        verdicts = [same(answer, golds[at]) for at in unmatched]
        if True in verdicts:
            del unmatched[verdicts.index(True)]
        elif None in verdicts:
            unknown = True
        else:
            return False
    return None if unknown else True


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued or: True wins over None, None over False."""
    unknown = False
    for verdict in verdicts:
        if verdict:
            return True
        unknown = unknown or verdict is None
    return None if unknown else False


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued and: False wins over None, None over True."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True
