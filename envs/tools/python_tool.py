"""The sandbox as an environment uses it: started by the first call, behind a guard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from envs.services.guard import Guard, GuardConfig, ToolFailed
from envs.services.stats import ToolStats
from envs.tools.sandbox import Execution, Sandbox, SandboxConfig
from rlsys.errors import BadInput

_KILL_S = 10.0  # a worker that its execution has broken is given up this long after its deadline


class PythonTool:
    """One per world and event loop: making it starts nothing, for the driver makes worlds that are never played."""

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self._sandbox: Sandbox | None = None
        self._starting = asyncio.Lock()
        self._guard: Guard[str, Execution] = Guard("python", self._run, guard_config(config))

    async def run(self, code: str) -> Execution:
        """What the code printed, or how it ended. Raises ToolFailed when the sandbox cannot be had."""
        return await self._guard(code)

    def stats(self) -> Mapping[str, ToolStats]:
        return {"python": self._guard.stats()}

    async def check(self) -> None:
        """One worker, started and ended. Raises BadInput where the host forbids the walls."""
        sandbox = Sandbox(replace(self._config, workers=1))
        try:
            await sandbox.start()
        except ToolFailed as error:
            raise BadInput(f"env.sandbox: {error}") from error
        finally:
            await sandbox.close()

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()

    async def _run(self, code: str) -> Execution:
        async with self._starting:
            if self._sandbox is None:
                sandbox = Sandbox(self._config)
                await sandbox.start()
                self._sandbox = sandbox
        return await self._sandbox.run(code)


def guard_config(config: SandboxConfig) -> GuardConfig:
    """Longer than the sandbox's own deadlines, which decide; as many calls at once as it has workers.

    Nothing is remembered: code may look at the clock, and a timeout on a busy machine may be none the next time.
    """
    longest = config.start_timeout_s + 2 * (config.timeout_s + _KILL_S)  # the sandbox itself tries twice
    deadline_s = max(longest, config.queue_timeout_s)
    return GuardConfig(deadline_s=deadline_s, attempts=2, cache_size=0, max_concurrent=config.workers)
