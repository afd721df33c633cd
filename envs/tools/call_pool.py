"""Tools in processes of their own, one call at a time in each: what a call does to its process harms no other call.
A session with a server at a URL stands in the place of a process.

A call that hangs, crashes its process, floods it or makes it lie is answered to the model, as the sandbox answers a
program that does (`ToolError`): the process is killed and the next call gets a new one. A process that cannot be
started is the tool's failure, a typed one (`ToolFailed`): the guard tries again, its circuit keeps the starts apart.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from envs.services.guard import Guard, GuardConfig, ToolFailed
from envs.services.stats import ToolStats
from envs.tools.child_process import CallBroke, Transport
from envs.tools.python_tool import Turns
from envs.tools.result import Result, ToolError
from rlsys.types import FailureKind


class Peer(Protocol):
    """A process that is ready for calls."""

    @property
    def transport(self) -> Transport: ...

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Raises CallBroke."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    workers: int  # processes, and calls at once
    deadline_s: float  # of a call
    start_timeout_s: float
    max_reply: int  # characters of a result


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Two calls are never the same one: a tool may answer the second differently."""

    tool: str
    arguments: Mapping[str, Any]


class CallPool:
    """One per world and event loop; making it starts nothing."""

    def __init__(self, name: str, start: Callable[[], Awaitable[Peer]], limits: PoolLimits) -> None:
        self._name, self._start, self._limits = name, start, limits
        self._idle: list[Peer] = []
        self._busy: set[Peer] = set()
        self._broken: Counter[str] = Counter()
        self._closed = False
        longest = limits.start_timeout_s + 2 * limits.deadline_s + 5
        guard = GuardConfig(deadline_s=longest, attempts=2, cache_size=0, max_concurrent=limits.workers)
        self._stalled_s = guard.patience_s
        self._turns = Turns(limits.workers, self._stalled_s)
        self._guard: Guard[_Call, Result] = Guard(name, self._ask, guard)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Raises ToolFailed where no process of the tool can be had."""
        try:
            async with self._turns.turn(0.0):
                return await self._guard(_Call(tool, arguments))
        except TimeoutError:
            detail = f"no call has ended for {self._stalled_s:g} s"
            raise ToolFailed(FailureKind.INFRA, self._name, detail) from None

    def stats(self) -> ToolStats:
        calls = self._guard.stats()
        errors = Counter(calls.errors) + self._broken
        return replace(calls, errors=dict(errors), queued=calls.queued + self._turns.waiting)

    async def check(self) -> None:
        """Start one process and keep it. Raises what starting it raises."""
        if not self._idle:
            self._idle.append(await self._begin())

    async def close(self) -> None:
        self._closed = True
        for peer in (*self._idle, *self._busy):
            await peer.transport.close()
        self._idle.clear()

    async def _begin(self) -> Peer:
        """Raises ConnectionError."""
        if self._closed:  # a call that was under way
            raise ConnectionError("it was closed")
        try:
            async with asyncio.timeout(self._limits.start_timeout_s):
                return await self._start()
        except TimeoutError as error:
            problem = f"it is not ready within {self._limits.start_timeout_s:g} s"
            raise ConnectionError(f"it cannot be started: {problem}") from error
        except (CallBroke, OSError) as error:
            raise ConnectionError(f"it cannot be started: {error}") from error

    async def _ask(self, call: _Call) -> Result:
        """Where a process that has answered before breaks, the call is made once more in a new one: an earlier call may
        have left it so."""
        while self._idle and not self._idle[-1].transport.running:
            await self._idle.pop().transport.close()
        used = self._idle.pop() if self._idle else None
        try:
            if used is not None:
                try:
                    return await self._ask_peer(used, call)
                except CallBroke:
                    if not used.transport.repeatable:
                        raise
            return await self._ask_peer(await self._begin(), call)
        except CallBroke as error:
            self._broken["broken"] += 1
            return ToolError(f"error: {error}")

    async def _ask_peer(self, peer: Peer, call: _Call) -> Result:
        """Raises CallBroke."""
        limits, reusable = self._limits, False
        self._busy.add(peer)
        try:
            async with asyncio.timeout(limits.deadline_s):
                result = await peer.call(call.tool, call.arguments)
            reusable = True
        except TimeoutError:
            self._broken["timeout"] += 1
            return ToolError(f"error: no answer within {limits.deadline_s:g} s")
        finally:
            self._busy.discard(peer)
            if reusable and not self._closed:
                self._idle.append(peer)
            else:
                await peer.transport.close()
        return _cut_result(result, limits.max_reply)


def _cut_result(result: Result, most: int) -> Result:
    text = (result if isinstance(result, str) else result.text).encode("utf-8", "replace").decode()
    if len(text) > most:
        text = f"{text[:most]} ... (cut after {most} characters)"
    return text if isinstance(result, str) else ToolError(text)
