"""The two ways a command ends badly, with their exit codes, and how the line about bad input is worded."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

BOUNDS: dict[str, Callable[[float], bool]] = {
    "at least 1": lambda number: number >= 1,
    "0 or more": lambda number: number >= 0,
    "at least 0": lambda number: number >= 0,
    "above 0": lambda number: number > 0,
    "between 0 and 1": lambda number: 0 <= number <= 1,
    "above 0 and at most 1": lambda number: 0 < number <= 1,
    "above 0 and at most 2": lambda number: 0 < number <= 2,
    "a finite number": math.isfinite,
}


SEE = "what was collected of it:"  # how a note of an error begins that names a folder
PLAIN = (str, int, float, bool, type(None), type(...), tuple, list, dict)
MOST_SHOWN = 4  # differences, in one line


class BadInput(Exception):
    """What the user gave cannot be used: one clear line, exit code 2, and nothing was started.

    The line is `where: key=found: reason, expected ...` of the parts that are given:
    where: the file with its line, the stage or the layer of configuration in which it stands;
    key: a configuration key, an option with its dashes, or a record's field in quotation marks;
    found: its value, `...` where the line does not show it; expected: what could stand there instead;
    reason: what is wrong with it, or another BadInput, whose key, found and expected this one has too.
    """

    def __init__(
        self, reason: object = "", *, where: object = "", key: str = "", found: object = ..., expected: str = ""
    ) -> None:
        subject = key if found is ... else _format_found(key, found)
        between = " " if key.startswith('"') and found is ... else ": "  # `"answer" is missing` is a sentence
        line = ": ".join(filter(None, [str(where), between.join(filter(None, [subject, str(reason)]))]))
        if expected:
            sentence = str(reason) or key.startswith('"')
            line += (", " if sentence else ": " if line else "") + f"expected {expected}"
        super().__init__(line)
        self.where, self.key, self.expected = str(where), key, expected
        # Actors send it: what is no plain value may not be one that can be sent.
        self.found = found if isinstance(found, PLAIN) else repr(found)
        if isinstance(reason, BadInput):
            self.key, self.expected = key or reason.key, expected or reason.expected
            self.found = reason.found if found is ... else self.found


class RunFailed(Exception):
    """The run cannot continue: the reason is the last line printed, exit code 1, and it can be resumed."""


class LearnerLost(RunFailed):
    """A rank of the learner died or hangs, and its part of the weights with it: the last checkpoint has them."""


def _format_found(key: str, found: object) -> str:
    """As a user would write it: `learner.lr=0.0`, `--tasks 0`, `"answer" is a list`."""
    if key.startswith("--"):
        return f"{key} {found}"
    return f"{key} is {found}" if key.startswith('"') else f"{key}={found!r}"


def describe_error(error: BaseException) -> str:
    """Any error in one line, for people; of a file, with its name and without the system's number."""
    if isinstance(error, (BadInput, RunFailed)):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def last_line(error: BaseException) -> str:
    """The same, with the folder that was written of it (`SEE`)."""
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(SEE)]
    return "; ".join([describe_error(error), *notes])


def require(condition: bool, key: str, found: object, expected: str, *, where: object = "") -> None:
    """Raise BadInput naming the key, what was found and what was expected."""
    if not condition:
        raise BadInput(where=where, key=key, found=found, expected=expected)


def require_bounds(config: object, prefix: str, expected: str, *keys: str) -> None:
    """`require_bounds(self, "loop.", "0 or more", "max_policy_lag")` looks at each of these fields of `config`.

    `expected` is one of BOUNDS; with ", or null" behind it or "null, or " before it None is right too.
    """
    bound = expected.removesuffix(", or null").removeprefix("null, or ")
    for key in keys:
        value = getattr(config, key)
        fits = bound != expected if value is None else BOUNDS[bound](value)
        require(fits, prefix + key, value, expected)


def refuse_unread(config: Any, prefix: str, keys: Collection[str], because: str) -> None:
    """Raise BadInput where one of these fields differs from its default, since nothing would read it."""
    edits = [field for field in fields(config) if field.name in keys and getattr(config, field.name) != field.default]
    if edits:
        settings = ", ".join(f"{prefix}{field.name}={getattr(config, field.name)!r}" for field in edits)
        undo = " ".join(f"{prefix}{field.name}={'null' if field.default is None else field.default}" for field in edits)
        raise BadInput(f"{settings}: no effect {because}; expected {undo}")


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """`seed=1, not 2; env.style='choice', not None`: the first few; empty where nothing differs."""
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    changes = [f"{key}={_shorten(before.get(key))}, not {_shorten(now.get(key))}" for key in keys[:MOST_SHOWN]]
    return "; ".join(changes + [f"{len(keys) - MOST_SHOWN} more"] * (len(keys) > MOST_SHOWN))


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-16:]}"


def nearest(word: str, candidates: Iterable[object], *, otherwise: str | None = None, alike: float = 0.4) -> str:
    """The known name most like `word`, for the end of an error line: ` (did you mean 'learner.lr'?)`.

    alike: how much the two must have in common, from 0 to 1. Where none is: `otherwise`, and without it the whole list,
    ` (known: learner.lr, loop.group_size)`.
    """
    names = list(map(str, candidates))
    close = difflib.get_close_matches(word[:80], names, n=1, cutoff=alike)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(names)})" if otherwise is None else otherwise
