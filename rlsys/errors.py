"""The two ways a command ends badly, with their exit codes, and how the line about bad input is worded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(Exception):
    """What the user gave cannot be used: one clear line, exit code 2, and nothing was started."""


class RunFailed(Exception):
    """The run cannot go on: the reason is the last line printed, exit code 1, and it can be resumed."""


def require(condition: bool, key: str, found: object, expected: str) -> None:
    """Raise BadInput naming the key, what was found and what was expected."""
    if not condition:
        raise BadInput(f"{key}={found!r}: expected {expected}")


def nearest(word: str, known: Iterable[object], *, otherwise: str | None = None) -> str:
    """The known name most like `word`, for the end of an error line: ` (did you mean 'learner.lr'?)`.

    Where none is alike: `otherwise`, and without it the whole list, ` (known: learner.lr, loop.group_size)`.
    """
    names = list(map(str, known))
    close = difflib.get_close_matches(word[:80], names, n=1, cutoff=0.4)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(names)})" if otherwise is None else otherwise
