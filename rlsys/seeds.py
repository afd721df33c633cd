"""Seeds, draws and orders derived from names, so that a request samples the same whatever runs concurrently."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rlsys.errors import BadInput

T = TypeVar("T")  # a Task, an example of a file, or the index of one


def derive_seed(*parts: object) -> int:
    """A stable 31-bit seed from (run, purpose, task, sibling, turn ...)."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


def hash_order(*parts: object) -> bytes:
    """A place in a draw: of a seed and of what is drawn, so that the order of the source does not matter."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def stable_sample(items: Sequence[T], count: int, place: Callable[[T], bytes]) -> list[T]:
    """The `count` items of the lowest `hash_order`, in their order: a smaller count is part of a larger one."""
    ranks = [place(item) for item in items]
    indices = sorted(range(len(items)), key=ranks.__getitem__)[:count]
    return [items[index] for index in sorted(indices)]


class Epochs(Generic[T]):
    """Every task once per epoch, in an order that only the seed decides.

    Stateless on purpose: the order is a function of the sequence number, so a resumed run saves no cursor (curricula
    with levels do: `rlsys/curriculum.py`).
    """

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
