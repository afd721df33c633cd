"""envs.tools.child_process: the end of a process whose output nobody reads."""

import asyncio
import sys

import pytest

from envs.tools.child_process import MAX_LINE, ChildProcess

WRITES = f"import sys, time; sys.stdout.write('x' * {4 * MAX_LINE}); time.sleep(600)"


@pytest.mark.timeout(60)
def test_output_that_is_not_read_delays_no_end() -> None:
    """asyncio stops reading at twice MAX_LINE, and sees no end of the process until the rest is read."""

    async def start_and_close() -> bool:
        process = await ChildProcess.start_plain([sys.executable, "-c", WRITES], {})
        await process.output.readexactly(MAX_LINE)
        await process.close(heirs_s=600.0)
        return process.running

    assert not asyncio.run(start_and_close())
