"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A passage in Search-R1's form: the title in quotes on the first line, then the text.

    >>> Document(id="0", contents='"Evan Morris"\\nEvan Morris was a lobbyist.').title
    'Evan Morris'
    """

    id: str
    contents: str

    @property
    def title(self) -> str:
        """The first line, without the quotes around it."""
        line = self.contents.partition("\n")[0].strip()
        return line[1:-1] if len(line) >= 2 and line[0] == line[-1] == '"' else line

    @property
    def text(self) -> str:
        """What follows the first line."""
        return self.contents.partition("\n")[2]


def contents(title: str, text: str) -> str:
    """Search-R1's one string for a title and a text."""
    return f'"{title}"\n{text}'
