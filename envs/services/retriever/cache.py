"""Least recently used values, bounded by their size in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """Several threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: Key) -> Value | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """What is larger than the whole cache is not kept."""
        if size > self._limit:
            return
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = value, size
            self.bytes += size
            while self.bytes > self._limit:
                _, (_, freed) = self._kept.popitem(last=False)
                self.bytes -= freed
