"""Messages between the pool and a zygote: four bytes of length, then JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

HEADER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one execution. Sent by the pool; `weaker` is the mode without namespaces."""

    weaker: bool
    timeout_s: float
    memory_mb: int
    total_memory_mb: int
    output_kb: int
    file_kb: int
    disk_kb: int
    processes: int


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()  # ASCII: lone surrogates survive as escapes
    return len(body).to_bytes(HEADER, "big") + body


def read(fd: int) -> dict[str, Any] | None:
    """The next message, or None at the end of the stream."""
    header = _exactly(fd, HEADER)
    if header is None:
        return None
    body = _exactly(fd, int.from_bytes(header, "big"))
    return None if body is None else dict(json.loads(body))


def write(fd: int, message: dict[str, Any]) -> None:
    data = memoryview(pack(message))
    while data:
        data = data[os.write(fd, data) :]


def _exactly(fd: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(fd, min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
