"""What a person, or a file, writes in the model's place: one message a line.

A line that is a JSON text or an object with "content" is read as JSON: `"two\\nlines"`, `{"content": "so far",
"truncated": true}`. Any other line is the message as it stands; one that ends in a backslash goes on in the next.
Blank lines are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rlsys.errors import BadInput
from rlsys.types import Completion, TurnStop


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the messages come from."""

    read: Callable[[str], str]  # (what is shown before it) -> a line with its end; "" where there are no more
    typed: bool  # at a terminal, which shows what is typed


@dataclass(frozen=True, slots=True)
class PlayerMessage:
    text: str
    truncated: bool = False  # as a token limit would: the episode ends there


@contextmanager
def lines_of(path: str | None) -> Iterator[Lines]:
    """None and "-" are standard input: with a line editor where that is a terminal. Raises BadInput."""
    if path is not None and path != "-":
        try:
            file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115  closed below
        except OSError as error:
            raise BadInput(f"--answers {path}: cannot be read ({error.strerror}), expected a message a line") from error
        with file:
            yield Lines(lambda _: file.readline(), typed=False)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        yield Lines(_edited, typed=True)
    else:
        yield Lines(lambda _: sys.stdin.readline(), typed=False)


def _edited(before: str) -> str:
    import readline  # noqa: F401  arrow keys and history in `input`

    try:
        return input(before) + "\n"
    except EOFError:
        print()
        return ""


def next_message(lines: Lines, before: str) -> PlayerMessage | None:
    """The next one, or None where there are no more."""
    while line := lines.read(before):
        while line.endswith("\\\n"):
            line = line[:-2] + "\n" + lines.read("... ")
        if line.strip():
            return _said(line.removesuffix("\n"))
    return None


def _said(line: str) -> PlayerMessage:
    if line.lstrip()[:1] in ('"', "{"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return PlayerMessage(line)
        if isinstance(value, str):
            return PlayerMessage(value)
        if isinstance(value, dict) and isinstance(value.get("content"), str):
            return PlayerMessage(value["content"], value.get("truncated") is True)
    return PlayerMessage(line)


def completion_of(said: PlayerMessage, stop: Sequence[str]) -> Completion:
    """As an engine would have ended it: after the first stop string, which the text keeps. Its tokens are not known."""
    ends = [said.text.find(each) + len(each) for each in stop if each in said.text]
    text = said.text[: min(ends)] if ends else said.text
    how = TurnStop.STOP if ends else TurnStop.LENGTH if said.truncated else TurnStop.EOS
    return Completion(token_ids=np.empty(0, np.int32), logprobs=np.empty(0, np.float32), spans=(), stop=how, text=text)
