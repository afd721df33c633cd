"""What a machine is made of: asked of the system and of NVIDIA's tool, without touching a GPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import psutil

from rlsys.system.card_memory import Card, cards_of_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    cores: int  # that this process may use
    memory: int  # bytes
    cards: tuple[Card, ...] = ()  # all, whatever this process sees

    def describe(self) -> dict[str, Any]:
        """As `run.json` has it: {"cores": 96, "memory_gb": 2164.0, "gpus": {...}}. gpus: of the first kind, "count" of
        all; null where there is none."""
        return {"cores": self.cores, "memory_gb": round(self.memory / 1e9, 1), "gpus": self._describe_cards()}

    def _describe_cards(self) -> dict[str, Any] | None:
        cards = [card for card in self.cards if card.mib]
        if not cards:
            return None
        name, driver, size = cards[0].name, cards[0].driver, (cards[0].mib + cards[0].reserved) * 2**20
        return {"name": name, "count": len(cards), "memory_gb": round(size / 1e9, 1), "driver": driver}


def look_at_machine() -> Machine:
    """This one. A driver that hangs costs seconds, and its cards."""
    memory = psutil.virtual_memory().total
    return Machine(cores=len(os.sched_getaffinity(0)), memory=memory, cards=tuple(cards_of_machine()))
