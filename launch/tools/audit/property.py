"""What a property of an audit is: what was looked at, in a line, and what does not fit, a line for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    name: str
    says: str
    offenders: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.offenders


Show = Callable[[str], None]
