"""What a family of call formats is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envs.text.words import THOUGHT_CLOSE, THOUGHT_OPEN
from rlsys.types import ToolCall

MAX_CALLS = 64  # of one message that are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`read` finds the calls of a message behind its thoughts; `write` is a message with calls behind `content`.

    `end` is where the call that begins at a place, with `opening`, ends: the place itself where none is whole there.
    """

    name: str
    tags: tuple[str, ...]  # each becomes one token where a tokenizer is trained
    read: Callable[[str], tuple[ToolCall, ...]]
    write: Callable[[str, Sequence[ToolCall]], str]
    opening: str
    end: Callable[[str, int], int]
    thoughts: tuple[tuple[str, str], ...] = ((THOUGHT_OPEN, THOUGHT_CLOSE),)
    typed: bool = True  # arguments are JSON; False: texts, which the tool's schema gives types
