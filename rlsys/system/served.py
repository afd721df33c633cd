"""Where a reference model answers that has an engine of its own: told to the learner's ranks, and light to import."""

from __future__ import annotations

from dataclasses import dataclass, field

REFERENCE_SERVICE = "reference"  # its name among the services of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceAddress:
    url: str
    token: str = field(repr=False)
