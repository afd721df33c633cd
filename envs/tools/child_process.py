"""A process that answers a line of JSON with a line of JSON: own functions and MCP servers over stdio.

What it writes is hostile. A line has a largest size, and no more than two of them are read ahead; everything that is
read is checked; and each question has a deadline (`envs.tools.call_pool`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


class ChildProcess:
    repeatable = True  # an earlier call may have left it broken

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said = b""
        self._killed = False
        self._draining = asyncio.create_task(self._drain())

    @classmethod
    async def start(cls, command: Command) -> ChildProcess:
        """Raises OSError. A command that does not exist ends at once, and says so on its standard error."""
        words = (sys.executable, "-I", str(CHILD), str(os.getpid()), str(command.memory_mb), *command.words)
        passed = {name: os.environ[name] for name in (*VARIABLES, *command.variables) if name in os.environ}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, env=passed, limit=MAX_LINE, start_new_session=True
        )
        return cls(process)

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises ProcessEnded."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise ProcessEnded(await self._last_words()) from error

    async def receive(self) -> dict[str, Any]:
        """The next line. Raises CallBroke for what is no JSON object of a bearable size."""
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError as error:
            raise CallBroke(f"it wrote a line of more than {MAX_LINE >> 20} MiB") from error
        except ConnectionError as error:
            raise ProcessEnded(await self._last_words()) from error
        if not line.endswith(b"\n"):
            raise ProcessEnded(await self._last_words())
        return read_object(line, "a line")

    async def close(self) -> None:
        """Kill it, with all that it has started, unless that has left its session. Our ends of its pipes are closed:
        what has left may hold the others for ever."""
        if self._killed:  # its number may be another process's by now
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._draining.cancel()
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.transport.abort()  # what is not written yet is not waited for
        self._process._transport.close()  # type: ignore[attr-defined]  # the pipes that asyncio reads have no public name
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._process.wait()

    async def _drain(self) -> None:
        """Its standard error: read to the end, so that it never waits for a reader; only the tail is kept."""
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(1 << 16):
            self._said = (self._said + piece)[-TAIL:]

    async def _last_words(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._process.wait()
                await asyncio.wait([self._draining])
        lines = self._said.decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        return f"it ended (exit code {code})" + (f": {lines[-1][:500]}" if lines else "")


def read_object(text: bytes, part: str) -> dict[str, Any]:
    """Raises CallBroke for what is no JSON object; it is called `part` there."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallBroke(f"it wrote {part} that is not JSON") from error
    if not isinstance(value, dict):
        raise CallBroke(f"it wrote {part} that is no JSON object")
    return value
