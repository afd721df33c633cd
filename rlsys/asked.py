"""When two texts ask the same: by what sources of one question do not differ in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from rlsys.types import Message


def normalize_question(question: str) -> str:
    """Without case, white space, the mark at the end, and the two ways in which Unicode writes an accent."""
    return " ".join(unicodedata.normalize("NFC", question).split()).casefold().rstrip(" ?.")


def normalize_messages(messages: Iterable[Message]) -> tuple[tuple[str, str], ...]:
    """The same of a conversation, whether it goes through a chat template or stands as it is."""
    return tuple((message.role, normalize_question(message.content)) for message in messages)
