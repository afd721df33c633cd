"""The sandbox as an environment uses it: started by the first call, shared fairly, behind a guard."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from envs.services.guard import Guard, GuardConfig, ToolFailed
from envs.services.stats import ToolStats
from envs.tools.sandbox import Execution, Outcome, Sandbox, SandboxConfig
from rlsys.errors import BadInput
from rlsys.types import FailureKind

_KILL_S = 10.0  # a worker that its execution has broken is given up this long after its deadline


class PythonTool:
    """One per world and event loop: making it starts nothing, for the driver makes worlds that are never played."""

    def __init__(self, config: SandboxConfig, folders: Sequence[str] = ()) -> None:
        """folders: as of `Sandbox`."""
        self._config = config
        self._folders = folders
        self._sandbox: Sandbox | None = None
        self._starting = asyncio.Lock()
        guard = guard_config(config)
        self._stalled_s = guard.patience_s
        self._turns = Turns(config.num_workers, self._stalled_s)
        self._guard: Guard[str, Execution] = Guard("python", self._run, guard)

    def episode(self) -> EpisodePython:
        """The tool as one episode has it."""
        return EpisodePython(self.run, self._config.episode_share_s)

    async def run(self, code: str, used_s: float = 0.0) -> Execution:
        """What the code printed, or how it ended. Raises ToolFailed when the sandbox cannot be had.

        used_s: seconds of execution that the caller's episode has had. Of several that wait the least goes first.
        """
        try:
            async with self._turns.turn(used_s):
                return await self._guard(code)
        except TimeoutError:
            detail = f"no execution has ended for {self._stalled_s:g} s"
            raise ToolFailed(FailureKind.INFRA, "python", detail) from None

    def stats(self) -> Mapping[str, ToolStats]:
        calls = self._guard.stats()
        return {"python": replace(calls, queued=calls.queued + self._turns.waiting)}

    async def check(self) -> None:
        """One worker, started and ended. Raises BadInput where the host forbids the walls."""
        sandbox = Sandbox(replace(self._config, workers=1), self._folders)
        try:
            await sandbox.start()
        except ToolFailed as error:
            raise BadInput(error, key="env.sandbox") from error
        finally:
            await sandbox.close()

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()

    async def _run(self, code: str) -> Execution:
        async with self._starting:
            if self._sandbox is None:
                sandbox = Sandbox(self._config, self._folders)
                await sandbox.start()
                self._sandbox = sandbox
        return await self._sandbox.run(code)


class EpisodePython:
    """Counts what an episode has used, so that programs which loop keep the sandbox from no other episode."""

    def __init__(self, run: Callable[[str, float], Awaitable[Execution]], share_s: float) -> None:
        self._run, self._share_s = run, share_s
        self._used_s = 0.0

    async def run(self, code: str) -> Execution:
        """As `PythonTool.run`. Past the episode's share it is a result, which the policy caused and reads."""
        share_s = self._share_s
        if self._used_s >= share_s:
            text = f"TimeoutError: the programs of this conversation have used their {share_s:g} seconds"
            return Execution(text=text, outcome=Outcome.TIMEOUT, seconds=0.0)
        execution = await self._run(code, self._used_s)
        self._used_s += execution.seconds
        return execution


def guard_config(config: SandboxConfig) -> GuardConfig:
    """Longer than the sandbox's own deadlines, which decide; as many calls at once as it has workers.

    Nothing is remembered: code may look at the clock, and a timeout on a busy machine may be none the next time.
    """
    longest = config.start_timeout_s + 2 * (config.timeout_s + _KILL_S)  # the sandbox itself tries twice
    deadline_s = max(longest, config.queue_timeout_s)
    return GuardConfig(deadline_s=deadline_s, attempts=2, cache_size=0, max_concurrent=config.num_workers)


class Turns:
    """Hands out `places` to callers of one event loop: the least used first, but for who has waited longer.

    A caller waits for as long as others finish. Only when no turn has ended for `stalled_s` does it give up.
    """

    def __init__(self, places: int, stalled_s: float) -> None:
        self._free = places
        self._stalled_s = stalled_s
        self._moved = 0.0  # when a turn last began or ended, on the loop's clock
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._arrivals = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for *_, future in self._waiting)

    @asynccontextmanager
    async def turn(self, used_s: float) -> AsyncIterator[None]:
        """Hold a place. `used_s`: what the caller's episode has used of the places. Raises TimeoutError."""
        if self._free:
            self._free -= 1
            self._moved = asyncio.get_running_loop().time()
        else:
            await self._wait(used_s)
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, used_s: float) -> None:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        # A caller that has waited for longer than the difference in use is served first: new ones cannot keep it out.
        heapq.heappush(self._waiting, (used_s + loop.time(), next(self._arrivals), place))
        try:
            while not place.done():
                left_s = self._moved + self._stalled_s - loop.time()
                if left_s <= 0:
                    raise TimeoutError
                await asyncio.wait([place], timeout=left_s)
        except BaseException:
            if place.done():  # it was handed over while the caller was cancelled
                self._hand_on()
            place.cancel()
            raise

    def _hand_on(self) -> None:
        self._moved = asyncio.get_running_loop().time()
        while self._waiting:
            *_, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
