"""A process that answers over its pipes: own functions, MCP servers over stdio, the sandbox's workers.

What it writes is hostile. A line has a largest size, and no more than two of them are read ahead; everything that is
read is checked; and each question has a deadline, which its caller keeps (`envs.tools.call_pool`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

CHILD = Path(__file__).with_name("child.py")
MAX_LINE = 1 << 22  # bytes
END_S = 10.0  # until a process that was killed is gone
TAIL = 2048  # bytes of what it said last on its standard error
# What a process is given of our environment; a person names further variables. No key of a run is among them.
VARIABLES = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "PYTHONPATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "USER",
    "VIRTUAL_ENV",
)


class CallBroke(Exception):
    """There was no answer that can be read: this call is lost, and with it the process, or the session."""


class ProcessEnded(CallBroke):
    """It is over, and said nothing to this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    words: tuple[str, ...]
    memory_mb: int  # 0: no limit
    variables: tuple[str, ...] = ()  # of our environment, besides VARIABLES


class Transport(Protocol):
    """What carries messages. Those that are received belong to the request that was sent last, or to none."""

    @property
    def running(self) -> bool: ...
    @property
    def repeatable(self) -> bool:
        """Whether a call that broke may be made again."""
        ...

    async def send(self, message: Mapping[str, Any]) -> None: ...
    async def receive(self) -> dict[str, Any]:
        """Both raise CallBroke; and, where the server takes no calls at all, ConnectionError and ToolBusy."""
        ...

    async def close(self) -> None: ...


class ChildProcess:
    """It speaks lines of JSON (`send`, `receive`), or what its caller makes of bytes (`write`, `output`)."""

    repeatable = True  # an earlier call may have left it broken

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process, self._input, self.output = process, process.stdin, process.stdout
        self._tail = b""
        self._killed = False
        self._draining = asyncio.create_task(self._drain(process.stderr))

    @classmethod
    async def start(cls, command: Command) -> ChildProcess:
        """Raises OSError. A command that does not exist ends at once, and says so on its standard error."""
        words = (sys.executable, "-I", str(CHILD), str(os.getpid()), str(command.memory_mb), *command.words)
        passed = {name: os.environ[name] for name in (*VARIABLES, *command.variables) if name in os.environ}
        return await cls.start_plain(words, passed)

    @classmethod
    async def start_plain(
        cls, words: Sequence[str], environment: Mapping[str, str], cwd: str | None = None
    ) -> ChildProcess:
        """Without a limit on memory, and not bound to the life of this process. Raises OSError."""
        pipes: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, "limit": MAX_LINE}
        return cls(
            await asyncio.create_subprocess_exec(*words, env=environment, cwd=cwd, start_new_session=True, **pipes)
        )

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises ProcessEnded."""
        try:
            await self.write(json.dumps(message).encode() + b"\n")
        except (ConnectionError, RuntimeError) as error:
            raise ProcessEnded(await self._last_words()) from error

    async def receive(self) -> dict[str, Any]:
        """The next line. Raises CallBroke for what is no JSON object of a bearable size."""
        try:
            line = await self.output.readline()
        except ValueError as error:
            raise CallBroke(f"it wrote a line of more than {MAX_LINE >> 20} MiB") from error
        except ConnectionError as error:
            raise ProcessEnded(await self._last_words()) from error
        if not line.endswith(b"\n"):
            raise ProcessEnded(await self._last_words())
        return read_object(line, "a line")

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError, or under uvloop RuntimeError, where its end of the pipe is closed."""
        self._input.write(data)
        await self._input.drain()

    async def close(self, heirs_s: float = 0.0) -> None:
        """Kill it, with all that it has started, unless that has left its session. Our ends of its pipes are closed:
        what has left may hold the others for ever. heirs_s: how long to wait until nothing holds them."""
        if self._killed:  # its number may be another process's by now
            return
        self._killed = True
        if self.running or not heirs_s:  # the number of one that has ended long ago may lead another group by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if heirs_s:  # before the transport is closed, which may reap it behind asyncio's back
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(heirs_s):
                    while await self.output.read(1 << 16):  # asyncio sees no end of it before what it wrote is read
                        pass
                    await self._process.wait()
                    await asyncio.wait([self._draining])
        self._draining.cancel()
        if not self._input.is_closing():
            self._input.transport.abort()  # what is not written yet is not waited for
        self._process._transport.close()  # type: ignore[attr-defined]  # the pipes that asyncio reads have no public name
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._process.wait()

    async def last_line(self) -> str:
        """Of its standard error, once it has ended, or after a second."""
        await self._wait_for_end(1.0)
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    async def _wait_for_end(self, timeout_s: float) -> None:
        """Until it is over and nothing holds its standard error, or the time has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
                await asyncio.wait([self._draining])

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        """Its standard error: read to the end, so that it never waits for a reader; only the tail is kept."""
        while piece := await stderr.read(1 << 16):
            self._tail = (self._tail + piece)[-TAIL:]

    async def _last_words(self) -> str:
        line = await self.last_line()  # until then there may be no exit code
        return f"it ended (exit code {self._process.returncode})" + (f": {line[:500]}" if line else "")


def read_object(text: bytes, part: str) -> dict[str, Any]:
    """Raises CallBroke for what is no JSON object; it is called `part` there."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallBroke(f"it wrote {part} that is not JSON") from error
    if not isinstance(value, dict):
        raise CallBroke(f"it wrote {part} that is no JSON object")
    return value
