"""What a machine is made of: asked of the system and of NVIDIA's tool, without touching a GPU."""

from __future__ import annotations

import os
from typing import Any

import psutil

from rlsys.system.card_memory import ask_driver

ASK = "--query-gpu=name,memory.total,driver_version"


def describe_machine() -> dict[str, Any]:
    """Cores that this process may use, memory in GB, and its GPUs: {"cores": 96, "memory_gb": 2164.0, "gpus": {...}}.

    gpus: of the first kind, "count" of all; null where there is none.
    """
    memory = psutil.virtual_memory().total / 1e9
    return {"cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory, 1), "gpus": read_gpus(ask_driver(ASK))}


def read_gpus(answer: str) -> dict[str, Any] | None:
    """The lines of `nvidia-smi`: "NVIDIA A100-SXM4-80GB, 81920, 580.65.06". Memory is in GB."""
    rows = [[part.strip() for part in line.split(",")] for line in answer.splitlines()]
    cards = [row for row in rows if len(row) == 3 and row[1].isdigit()]
    if not cards:
        return None
    name, memory, driver = cards[0]
    return {"name": name, "count": len(cards), "memory_gb": round(int(memory) * 2**20 / 1e9, 1), "driver": driver}
