"""Who wrote what: the model's text of a transcript, and a transcript out of one string.

A message is hostile. Every search is one pass of `str.find`, linear in the text; a tag is found within one message
only, so nothing that the environment wrote can open, close or stand inside a tag of the model.
"""

from __future__ import annotations

import bisect
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from envs.protocols import PROTOCOLS, Inline
from envs.rewards.findings import Span
from envs.tasks.config import TaskConfig
from envs.text.words import without_thought
from rlsys.errors import BadInput
from rlsys.types import Message, Task, Transcript

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def inline_format_of(env: Any, reward: Any) -> Inline | None:
    """How the recipe writes the environment's text into one string: the protocol's way, else the reward's."""
    protocol = PROTOCOLS.get(env.protocol_name) if isinstance(env, TaskConfig) else None
    inline: Inline | None = protocol.inline if protocol is not None else None
    return inline or getattr(reward, "inline", None)


@dataclass(frozen=True, slots=True)
class Piece:
    """A message that the model wrote, with its place in `transcript.messages`."""

    message: int
    text: str


def model_pieces(transcript: Transcript) -> list[Piece]:
    """The model's messages, in order."""
    return [Piece(at, message.content) for at, message in enumerate(transcript.messages) if message.role == "assistant"]


def answer_pieces(transcript: Transcript) -> list[Piece]:
    """The model's messages with spaces in the place of their thoughts: what stands in one is no answer."""
    return [Piece(piece.message, without_thought(piece.text)) for piece in model_pieces(transcript)]


def lower_ascii(pieces: Sequence[Piece]) -> list[Piece]:
    """With ASCII letters in lower case, every character where it was."""
    return [Piece(piece.message, piece.text.translate(_LOWER)) for piece in pieces]


def count_tag(pieces: Sequence[Piece], tag: str) -> int:
    return sum(piece.text.count(tag) for piece in pieces)


def first_span(pieces: Sequence[Piece], tag: str) -> Span | None:
    """Where `tag` stands for the first time."""
    for piece in pieces:
        start = piece.text.find(tag)
        if start >= 0:
            return Span(message=piece.message, start=start, end=start + len(tag))
    return None


def text_of_span(pieces: Sequence[Piece], span: Span) -> str:
    """The text of a span."""
    return next(piece.text for piece in pieces if piece.message == span.message)[span.start : span.end]


def last_span_between(pieces: Sequence[Piece], opening: str, closing: str) -> Span | None:
    """Between the last `closing` that has an `opening` before it in its message, and the nearest such `opening`."""
    for piece in reversed(pieces):
        begin, end = piece.text.find(opening), piece.text.rfind(closing)
        if begin >= 0 and begin + len(opening) <= end:
            start = piece.text.rfind(opening, 0, end) + len(opening)
            return Span(message=piece.message, start=start, end=end)
    return None


def answer_key(task: Task) -> tuple[str, ...]:
    """The answer key. Raises BadInput for a task without one: nothing can be said about the model then."""
    key = tuple(answer for answer in task.answers if answer.strip())
    if not key:
        raise BadInput('no "answers" to compare with', where=f"task {task.task_id}")
    return key


def num_tokens(transcript: Transcript) -> int:
    """How many tokens the model wrote. Raises BadInput where that is unknown: characters would be another length."""
    length = transcript.num_tokens
    if length is None and transcript.token_ids is not None:
        length = len(transcript.token_ids)
    if length is None or length < 0:
        problem = "no length" if length is None else f"num_tokens={length}"
        raise BadInput(
            problem, where=f"task {transcript.task.task_id}", expected="num_tokens or token_ids of the response"
        )
    return length


def split_response(response: str, *, opening: str, closing: str, notices: Sequence[str] = ()) -> tuple[Message, ...]:
    """Everything after the prompt as one string, cut into the model's messages and the environment's (role "tool").

    The contents, joined, are `response` again. An `opening` starts the environment's text. It ends after the `closing`
    that belongs to it, nested pairs included; where inner tags have taken that one away, after the next `closing`;
    where there is none, nowhere: the rest is the environment's. A `closing` alone is the model's text. So are spaces
    around. Of `notices`, whole texts of the environment, every copy outside of the tags is cut out too.
    """
    notice = re.compile("|".join(map(re.escape, sorted(filter(None, notices)))) or "(?!)")
    messages: list[Message] = []

    def add(role: str, start: int, end: int) -> None:
        if end > start:
            messages.append(Message(role=role, content=response[start:end]))

    at = 0
    for start, end in (*_environment_spans(response, opening, closing), (len(response), len(response))):
        for match in notice.finditer(response, at, start):
            add("assistant", at, match.start())
            add("tool", *match.span())
            at = match.end()
        add("assistant", at, start)
        add("tool", start, end)
        at = end
    return tuple(messages)


def split_inline(response: str, inline: Inline | None) -> tuple[Message, ...]:
    """`split_response` in a protocol's way; without one, all of it is the model's."""
    if inline is None:
        return (Message(role="assistant", content=response),)
    return split_response(response, opening=inline.opening, closing=inline.closing, notices=inline.notices)


def _environment_spans(text: str, opening: str, closing: str) -> Iterator[tuple[int, int]]:
    """The outermost stretches between the tags, tags included."""
    closed_at: dict[int, int] = {}  # opening -> end of its closing
    open_tags: list[int] = []
    openings: list[int] = []
    closings: list[int] = []  # where they end
    for tag in re.finditer(f"{re.escape(opening)}|{re.escape(closing)}", text):
        if tag.group() == opening:
            openings.append(tag.start())
            open_tags.append(tag.start())
        else:
            closings.append(tag.end())
            if open_tags:
                closed_at[open_tags.pop()] = tag.end()
    end = 0
    for start in openings:
        if start >= end:
            following = bisect.bisect_right(closings, start)
            nearest = closings[following] if following < len(closings) else len(text)
            end = closed_at.get(start, nearest)
            yield start, end
