"""envs.tools.child_process: the end of a process whose output nobody reads."""

import asyncio
import sys
from pathlib import Path

import pytest

from envs.tools.child_process import ChildProcess

# It writes until nobody has read for a second, and says so by a file.
WRITES = """
import pathlib, select, sys, os, time
while select.select([], [1], [], 1.0)[1]:
    os.write(1, b"x" * 4096)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


@pytest.mark.timeout(60)
def test_output_that_is_not_read_delays_no_end(tmp_path: Path) -> None:
    """asyncio stops reading at twice MAX_LINE, and sees no end of the process until the rest is read."""
    full = tmp_path / "full"

    async def start_and_close() -> bool:
        process = await ChildProcess.start_plain([sys.executable, "-c", WRITES, str(full)], {})
        while not full.exists():
            await asyncio.sleep(0.05)
        await process.close(heirs_s=600.0)
        return process.running

    assert not asyncio.run(start_and_close())
