"""What a property of an audit is: what was looked at, in a line, and what does not fit, a line for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    name: str
    says: str
    offenders: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.offenders


Show = Callable[[str], None]


def number_of(row: Mapping[str, Any], key: str) -> float:
    """0 where the row has none: a damaged row is reported as such."""
    value = row.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
