"""Reads the table of docs/judge.md: models that others serve, until when, and what they cost."""

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

PAGE = Path(__file__).parent / "judge.md"
ROW = re.compile(
    r"^\| `([^`]+)` \| (\d{4}-\d\d-\d\d|no date|gone) \| (?:([\d.]+), ([\d.]+))? ?\| (.+) \|$", re.MULTILINE
)
LOOKED = re.compile(r"^Last looked at: (\d{4}-\d\d-\d\d)$", re.MULTILINE)


@dataclass(frozen=True)
class ServedModel:
    """leaves: None for no announced date. prices: USD for a million tokens, of a question and of an answer."""

    leaves: date | None
    prices: tuple[float, float] | None
    source: str


def looked_at() -> date:
    """The day on which a person compared the table with what the providers say."""
    (day,) = LOOKED.findall(PAGE.read_text())
    return date.fromisoformat(day)


def served_models() -> dict[str, ServedModel]:
    return {
        name: ServedModel(_leaves(leaves), (float(paid), float(made)) if paid else None, source)
        for name, leaves, paid, made, source in ROW.findall(PAGE.read_text())
    }


def _leaves(cell: str) -> date | None:
    if cell == "gone":
        return date.min
    return None if cell == "no date" else date.fromisoformat(cell)
