"""Which part of which run a process is of: `RLSYS_PART=rollout:0` in its environment, and in that of what it starts."""

from __future__ import annotations

import os

from rlsys.system import orphans

VARIABLE = "RLSYS_PART"
DRIVER = "RLSYS_PART_OF"  # the tag of the run's driver, on whichever node the part is


def owner_of(driver: int) -> str:
    """How the tag of a driver on this machine begins. driver: its pid."""
    return f"{orphans.machine()}:{driver}:"


def of_part(name: str) -> dict[str, str]:
    """Of the runtime environment of its actor. Called by the driver."""
    return {VARIABLE: name, DRIVER: os.environ.get(orphans.VARIABLE, "")}
