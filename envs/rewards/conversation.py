"""A conversation as a judge of steps is shown it: every message under its heading, and each cut by itself.

A message that is long, or that looks like two, takes nobody else's place: what a policy writes can push no result of a
tool out of sight, and can be taken for none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from envs.protocols import Call, Protocol
from envs.protocols.swirl import result_of
from envs.services.judge.kinds import MAX_CHARS
from envs.services.judge.templates import CUT
from rlsys.types import Message

MAX_JUDGED = 8_000  # characters of the message that is judged: nobody is asked about a longer one
MAX_SAID = 1_000  # of an earlier message of the model, where not all fits: its end, in which its call stands
REST = "\n[the rest is left out]"
MINE, RESULT = "[my message]", "[result]"

_OPEN, _CLOSE = r"[\[\uff3b\u3010\u3014\u27e6]", r"[\]\uff3d\u3011\u3015\u27e7]"
_NAMED = re.compile(
    rf"{_OPEN}\W{{0,8}}((?:my\W{{1,8}}message|result)s?\b[^\]\n]{{0,20}}?)\W{{0,8}}{_CLOSE}", re.IGNORECASE
)
_ALONE = re.compile(
    rf"^[^\S\n]{{0,80}}{_OPEN}([^\n]{{0,20}}[^\W\d_]{{4}}[^\n]{{0,20}}){_CLOSE}[^\S\n]{{0,80}}$", re.MULTILINE
)


def shown(talk: Sequence[Message], protocol: Protocol, *, without_mine: bool = False) -> str:
    """The messages, the last of which is judged, in at most `MAX_CHARS` characters. A result stands without its query,
    which is in the message before it.

    without_mine: with the tool's words alone.
    """
    headings = [MINE if each.role == "assistant" else RESULT for each in talk]
    texts = _texts(talk, protocol)
    if without_mine:
        texts = ["" if heading == MINE else text for heading, text in zip(headings, texts, strict=True)]
    room = MAX_CHARS - sum(len(heading) + 3 for heading in headings) - len(texts[-1])
    if sum(map(len, texts[:-1])) > room:
        said = [at for at, heading in enumerate(headings[:-1]) if heading == MINE]
        own = min(MAX_SAID, room // (2 * len(said))) if said else 0
        for at in said:
            texts[at] = _end(texts[at], own)
            room -= len(texts[at])
        results = [at for at, heading in enumerate(headings[:-1]) if heading == RESULT]
        most = _level([len(texts[at]) for at in results], room)
        for at in results:
            texts[at] = _beginning(texts[at], most)
    return "\n\n".join(f"{heading}\n{text}" for heading, text in zip(headings, texts, strict=True))


def without_headings(text: str) -> str:
    """Nothing in it looks like the heading of a message: who writes a result is not the tool."""
    lines = "\n".join("".join(each for each in text if unicodedata.category(each) != "Cf").splitlines())
    return _ALONE.sub(r"\1", _NAMED.sub(r"\1", lines))


def _texts(talk: Sequence[Message], protocol: Protocol) -> list[str]:
    texts, call = [], ""
    for each in talk:
        text = each.content
        if each.role == "assistant":
            parsed = protocol.parse(text)
            call = parsed.text if isinstance(parsed, Call) else ""
        else:
            found = result_of(call, text)
            text = text if found is None else found
        texts.append(without_headings(text))
    return texts


def _level(lengths: Sequence[int], room: int) -> int:
    """How long a text may be so that all fit into `room`: what a short one leaves, the long ones have."""
    left = len(lengths)
    for length in sorted(lengths):
        if length * left > room:
            return max(0, room // left)
        room, left = room - length, left - 1
    return max(lengths, default=0)


def _beginning(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return text[: most - len(REST)] + REST if most > len(REST) else ""


def _end(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return CUT + text[len(CUT) - most :] if most > len(CUT) else ""
