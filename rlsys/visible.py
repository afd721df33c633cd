"""Text that somebody else wrote, as a terminal may have it."""

from __future__ import annotations


def visible_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def visible(text: str) -> str:
    """What a terminal would obey, or could not show, as an escape."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
