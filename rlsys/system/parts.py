"""Which part of a run a process is of: `RLSYS_PART=rollout:0` in its environment, and in that of what it starts."""

from __future__ import annotations

VARIABLE = "RLSYS_PART"


def of_part(name: str) -> dict[str, str]:
    """Of the runtime environment of its actor."""
    return {VARIABLE: name}
