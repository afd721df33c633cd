"""What a dialect is: how a policy writes a call or an answer, and how the environment's words reach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlsys.types import Message


@dataclass(frozen=True, slots=True)
class Call:
    """Something for the tool: Call("capital of France"). Stripped; empty when the tags hold nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What stands in the answer tag, stripped. `with_call`: the message holds a call too, which is not executed."""

    text: str
    with_call: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """Neither a call nor an answer."""


Parsed = Call | Answer | Malformed


def _no_call(_: str) -> str:
    raise NotImplementedError("this dialect has no tool to call")


def _no_reply(_: str, __: str) -> Message:
    raise NotImplementedError("this dialect has no tool that could reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Pure functions and constants. `parse` takes any text, raises nothing and is linear in its length."""

    name: str
    tags: tuple[str, ...]  # each becomes one token where a tokenizer is trained
    stop: tuple[str, ...]  # generation ends after any of these, or at the end of the model's turn
    parse: Callable[[str], Parsed]
    write_answer: Callable[[str], str]
    write_call: Callable[[str], str] = _no_call
    reply: Callable[[str, str], Message] = _no_reply  # (the call, the tool's result)
    calls: int | None = 0  # calls per episode; None: as many as the token budget allows
    blank: str = ""  # the result of an empty call, which is not sent to the tool
    malformed: Message | None = None  # said to a malformed message, which costs a turn; None: the episode ends
    over_limit: Message | None = None  # said to the first call over the limit; the next message must answer
    max_reply_tokens: int | None = None  # what the environment says is cut to this
    thinks: bool = False  # reasoning stands in <think> tags
