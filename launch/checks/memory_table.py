"""Memory as a table: what holds it, how much, of how much, and what the sum is made of. `--dry-run` and `rlsys plan`
print the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from launch.checks.gpu_memory import GIGA, Parts, total

UNITS = {"GB": (GIGA, ",.1f"), "MiB": (2.0**20, ",.0f")}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Of one process, or of one node: parts in bytes, whose sum is what is needed."""

    name: str
    parts: Parts
    of: float | None = None  # bytes that there are; None where that is not known, or no limit
    note: str = ""

    @property
    def needed(self) -> float:
        return total(self.parts)

    def made_of(self, unit: str) -> str:
        amounts = " + ".join(f"{format_amount(size, unit)} {label}" for label, size in self.parts)
        return f"{amounts} ({self.note})" if self.note else amounts


def format_amount(count: float, unit: str) -> str:
    size, how = UNITS[unit]
    return format(count / size, how)


def format_rows(rows: Iterable[MemoryRow], unit: str) -> list[str]:
    """A heading and a line for each row."""
    lines = [f"{'memory':<11}{unit:>8}{'of':>8}   made of"]
    for row in rows:
        limit = "" if row.of is None else f"{row.of / UNITS[unit][0]:,.0f}"
        lines.append(f"  {row.name:<9}{format_amount(row.needed, unit):>8}{limit:>8}   {row.made_of(unit)}")
    return lines


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count != 1)
