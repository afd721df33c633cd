"""The longest time that the loop stood still is told once, with the row."""

import asyncio
import time

from launch.observe.pulse import Pulse


def test_a_block_is_measured_and_told_once() -> None:
    async def blocked() -> tuple[dict[str, float], dict[str, float]]:
        pulse = Pulse()
        assert pulse.row() == {}
        beating = asyncio.create_task(pulse.beat())
        await asyncio.sleep(0.03)
        time.sleep(0.2)
        await asyncio.sleep(0.03)
        first = pulse.row()
        beating.cancel()
        return first, pulse.row()

    first, second = asyncio.run(blocked())
    assert first["driver/longest_block_s"] > 0.15 and second == {}
