"""How long a delivery of weights may take: as the key says, and longer where the size and the links ask for it."""

from __future__ import annotations

from dataclasses import dataclass

# Bytes per second from a rank to a loaded engine, until a delivery has been measured: slower than 10 Gbit/s and a disk.
SLOWEST = 100e6
PATIENCE = 3.0  # times what the size and the rate say


@dataclass(slots=True)
class Pace:
    """Of the deliveries that came to every engine in time."""

    rate: float = SLOWEST  # bytes per second, of the last

    def deadline_s(self, configured_s: float, size: int) -> float:
        return max(configured_s, PATIENCE * size / self.rate)

    def note(self, size: int, seconds: float) -> None:
        if size > 0 and seconds > 0:
            self.rate = size / seconds
