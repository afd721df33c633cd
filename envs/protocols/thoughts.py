"""A thought that a server sends apart from the answer, as it stands in a message that a protocol reads."""

from __future__ import annotations

from collections.abc import Sequence

from envs.protocols import PROTOCOLS

OPEN, CLOSE = "<think>", "</think>"
TAGS = frozenset(tag for protocol in PROTOCOLS.values() for tag in protocol.tags)


def write_thought(thought: str, stop: Sequence[str]) -> str:
    """The thought in its tags, to stand before the answer; "" for none.

    A tag inside it that a protocol or `stop` knows stands in square brackets: a thought that mentions a call makes
    none. Where `</think>` ends a message (IRCoT) the thought is left out, since it would be read as a call itself.
    """
    if not thought or CLOSE in stop:
        return ""
    for tag in sorted({*TAGS, *stop, *(closing.replace("</", "<", 1) for closing in stop)}):
        if tag.startswith("<") and tag.endswith(">"):
            thought = thought.replace(tag, f"[{tag[1:-1]}]")
    return f"{OPEN}\n{thought.strip()}\n{CLOSE}\n\n"
