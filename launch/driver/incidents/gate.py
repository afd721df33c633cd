"""Which of the things that happen begin a folder: one cause is one incident, and a part that flaps fills no disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SAME_S = 600.0  # in which the same kind of thing of the same part is the same incident
SOON_S = 30.0  # in which other things are taken as consequences of the first
RECOVERED = "restart"
FORCED = ("failed", "asked")


@dataclass(frozen=True, slots=True)
class Trigger:
    kind: str
    who: str
    text: str
    time: float  # since 1970
    recovered: bool = False  # it is good news


@dataclass(slots=True)
class _Open:
    trigger: Trigger
    folder: Path


class Gate:
    def __init__(self) -> None:
        self._open: list[_Open] = []

    def opened(self, trigger: Trigger, folder: Path) -> None:
        self._open = [*self._open[-100:], _Open(trigger, folder)]

    def belongs_to(self, trigger: Trigger) -> tuple[Path | None, bool]:
        """The folder of an incident that it belongs to, and whether it is that very thing again. (None, False): of
        none; for good news that means that there is nothing to write."""
        if trigger.kind in FORCED:
            return None, False
        self._open = [entry for entry in self._open if entry.folder.is_dir()]  # the oldest are removed for new ones
        for entry in reversed(self._open):
            same = entry.trigger.kind == trigger.kind and entry.trigger.who == trigger.who
            if same and not trigger.recovered and trigger.time - entry.trigger.time < SAME_S:
                return entry.folder, True
        if trigger.recovered:
            part_entries = [entry for entry in self._open if entry.trigger.who == trigger.who]
            return (part_entries[-1].folder, False) if part_entries else (None, False)
        newest = self._open[-1] if self._open else None
        if newest is not None and trigger.time - newest.trigger.time < SOON_S:
            return newest.folder, False
        return None, False
