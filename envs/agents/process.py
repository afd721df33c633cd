"""Agents as processes: started, waited for and ended through their keeper (`envs/agents/keeping`)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from envs.tools.child_process import CallBroke, ChildProcess, Command
from rlsys.choices import custom_folders
from rlsys.untrusted import is_own_file

log = logging.getLogger("rlsys.agents")
HERE = str(Path(__file__).parent)
KEEPER = f"import sys; sys.path.insert(0, {HERE!r}); from keeping import keeper; del sys.path[0]; keeper.main()"
START_S = 120.0  # for the import of an agent's module
NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    memory_mb: int  # of an agent with all that it has started
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExit:
    """How an agent ended."""

    code: int | None  # None: a signal ended it
    signal: int
    why: str  # we have ended it, or lost it
    returned: Any  # NOTHING: what it returned, or the last line that it printed, is no JSON
    output: str  # what it has written last
    lost: bool = False  # with its keeper, or for want of one

    @property
    def last_line(self) -> str:
        """Of a traceback with the place that it is about."""
        line = (self.output.strip().splitlines() or [""])[-1][:200]
        places = re.findall(r'File "([^"\n]+)", line (\d+)', self.output)
        own = [place for place in places if is_own_file(place[0])] or places  # where it asked, not the SDK's own line
        return f"{line} ({own[-1][0]}:{own[-1][1]})" if places else line


@dataclass(slots=True, eq=False)
class AgentProcess:
    number: int
    ended: asyncio.Future[AgentExit]

    @property
    def running(self) -> bool:
        return not self.ended.done()


def is_function(agent: str) -> bool:
    """Whether it is a dotted path, and no command line."""
    return "." in agent and all(part.isidentifier() for part in agent.split("."))


class AgentKeeper:
    """One for each world and event loop; it starts its process with its first agent."""

    def __init__(self, agent: str, limits: AgentLimits, variables: Sequence[str]) -> None:
        self._agent, self._limits, self._variables = agent, limits, tuple(variables)
        self._process: ChildProcess | None = None
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._agents: dict[int, AgentProcess] = {}
        self._numbers = count()

    async def start(self, task: Mapping[str, Any], base_url: str, api_key: str) -> AgentProcess:
        """Raises CallBroke where the keeper cannot be started."""
        process = await self._running_process()
        agent = AgentProcess(next(self._numbers), asyncio.get_running_loop().create_future())
        self._agents[agent.number] = agent
        job = {
            "id": agent.number,
            "task": task,
            "base_url": base_url,
            "api_key": api_key,
            "command": [] if is_function(self._agent) else shlex.split(self._agent),
            "memory_mb": self._limits.memory_mb,
            "processes": self._limits.processes,
        }
        try:
            await process.send(job)
        except BaseException:
            await self.end(agent)  # it may have been sent
            self._agents.pop(agent.number, None)
            raise
        return agent

    async def end(self, agent: AgentProcess) -> None:
        """Kill it, with all that it has started."""
        if agent.running and self._process is not None and self._process.running:
            with suppress(CallBroke):
                await self._process.send({"kill": agent.number})

    async def close(self) -> None:
        process, self._process = self._process, None
        if self._reading is not None:
            self._reading.cancel()
        if process is not None:
            await process.close()
        self._lose("the environment was closed")

    async def _running_process(self) -> ChildProcess:
        async with self._starting:
            if self._process is None or not self._process.running:
                await self.close()
                self._process = await self._open()
                self._reading = asyncio.create_task(self._read(self._process))
            return self._process

    async def _open(self) -> ChildProcess:
        function = self._agent if is_function(self._agent) else ""
        settings = {"path": [*sys.path, *custom_folders()], "function": function}
        words = (sys.executable, "-c", KEEPER, json.dumps(settings))
        process = await ChildProcess.start(Command(words=words, memory_mb=0, variables=self._variables))
        try:
            async with asyncio.timeout(START_S):
                ready = await process.receive()
            if not ready.get("alone"):
                log.warning("agents get no namespaces here: they see each other, and what hides may outlive them")
        except BaseException as error:
            await process.close()
            if isinstance(error, TimeoutError):
                raise CallBroke(f"the import of {self._agent} takes longer than {START_S:g} s") from None
            raise
        return process

    async def _read(self, process: ChildProcess) -> None:
        reason = ""
        while True:
            try:
                line = await process.receive()
            except CallBroke as error:
                reason = str(error)
                break
            agent = self._agents.pop(line["id"], None)
            if agent is not None and agent.running:
                agent.ended.set_result(_parse_exit(line))
        self._lose(f"the keeper of agents is gone: {reason}")

    def _lose(self, why: str) -> None:
        lost, self._agents = self._agents, {}
        for agent in lost.values():
            if agent.running:
                agent.ended.set_result(AgentExit(code=None, signal=9, why=why, returned=NOTHING, output="", lost=True))


def _parse_exit(line: Mapping[str, Any]) -> AgentExit:
    lines = str(line["returned"]).strip().splitlines()
    returned: Any = NOTHING
    with suppress(ValueError, RecursionError):
        returned = json.loads(lines[-1]) if lines else NOTHING
    return AgentExit(
        code=line["code"],
        signal=line["signal"],
        why=line["why"],
        returned=returned,
        output=str(line["output"]),
        lost=line.get("lost", False),
    )
