"""Seeds and draws derived from names, so that a request samples the same whatever runs beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def derive(*parts: object) -> int:
    """A stable 31-bit seed from (run, purpose, task, sibling, turn ...)."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


def hash_order(*parts: object) -> bytes:
    """A place in a draw: of a seed and of what is drawn, so that the order of the source does not matter."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def stable_sample(items: Sequence[T], count: int, place: Callable[[T], bytes]) -> list[T]:
    """The `count` items of the lowest `hash_order`, in their order: a smaller count is part of a larger one."""
    ranks = [place(item) for item in items]
    chosen = sorted(range(len(items)), key=ranks.__getitem__)[:count]
    return [items[index] for index in sorted(chosen)]
