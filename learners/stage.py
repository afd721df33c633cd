"""What a rank works with from one `begin` to the next, and its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from learners.algorithms.base import Algorithm
from learners.models import Models
from rlsys.batch import MicroBatch
from rlsys.config.learner import LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    models: Models
    learner: LearnerConfig
    algorithm: Algorithm
    temperature: float
    total_steps: int
    torch_device: torch.device
    dtype: str
    world_size: int

    def sum_over_ranks(self, numbers: list[float]) -> list[float]:
        """Each number summed over all ranks. A collective: every rank calls, with as many numbers."""
        return self._reduced(numbers, torch.distributed.ReduceOp.SUM)

    def max_over_ranks(self, numbers: list[float]) -> list[float]:
        return self._reduced(numbers, torch.distributed.ReduceOp.MAX)

    def _reduced(self, numbers: list[float], how: Any) -> list[float]:
        if self.world_size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.torch_device)
        torch.distributed.all_reduce(tensor, op=how)
        result: list[float] = tensor.tolist()
        return result


class Phases:
    """Seconds by phase. On a GPU a phase ends when its kernels have."""

    def __init__(self, torch_device: torch.device) -> None:
        self._torch_device = torch_device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self._torch_device.type == "cuda":
            torch.cuda.synchronize(self._torch_device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def to_device(row: MicroBatch, device: torch.device) -> MicroBatch:
    """The row with its tensors on a device; the row itself where that is the host."""
    if device.type == "cpu":
        return row
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(row)}
    moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if torch.is_tensor(value)}
    return replace(row, **moved)
