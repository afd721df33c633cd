"""What one execution may use."""

from __future__ import annotations

from dataclasses import dataclass


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
