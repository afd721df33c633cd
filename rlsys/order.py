"""Every task once per epoch, in an order that only the seed decides.

Stateless on purpose: the order is a function of the sequence number, so a resumed run saves no cursor (curricula with
levels do: `rlsys/curriculum.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

from rlsys.errors import BadInput

T = TypeVar("T")  # a Task, an example of a file, or the index of one


class Epochs(Generic[T]):
    def __init__(self, tasks: Sequence[T], *, seed: int | str) -> None:
        if not tasks:
            raise BadInput("no training tasks: the environment's `train` split is empty")
        self._tasks = tasks
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def draw(self, sequence: int) -> tuple[int, T]:
        """(epoch, task) number `sequence`, counted from 0 over the whole stage."""
        epoch, index = divmod(sequence, len(self._tasks))
        if epoch != self._epoch:
            self._order = list(range(len(self._tasks)))
            random.Random(f"{self._seed}:{epoch}").shuffle(self._order)
            self._epoch = epoch
        return epoch, self._tasks[self._order[index]]
