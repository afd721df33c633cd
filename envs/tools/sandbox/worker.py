"""One worker process, seen from the pool: start it, ask it, end it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
from collections.abc import Awaitable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from envs.tools.child_process import END_S, ChildProcess
from envs.tools.sandbox.config import Execution, Layer, Outcome, SandboxConfig
from envs.tools.sandbox.jail import frames
from envs.tools.sandbox.jail.frames import Limits

T = TypeVar("T")

_HERE = str(Path(__file__).parent)
COMMAND = f"import sys; sys.path.insert(0, {_HERE!r}); from jail import zygote; del sys.path[0]; zygote.main()"
_LIMITS = ("timeout_s", "memory_mb", "total_memory_mb", "output_kb", "file_kb", "disk_kb", "processes")
_FLAGS = ("-P", "-s", "-S", "-X", "utf8")  # nothing from the working directory, the user's folder or site-packages
_LARGEST_ANSWER = 1 << 24


class WorkerLost(Exception):
    """The process died, hung or spoke nonsense: it has been ended."""


class LayerRefused(Exception):
    """The host does not give a layer of the walls."""

    def __init__(self, layer: str, why: str) -> None:
        super().__init__(f"{layer}: {why}")
        self.layer = layer
        self.why = why


class Worker:
    """At most one execution at a time. After WorkerLost it can be started again."""

    def __init__(self, config: SandboxConfig, *, weaker: bool, folders: Sequence[str] = ()) -> None:
        """folders: where modules of `preload` lie that are in no package; an execution cannot read them."""
        self._config = config
        self._folders = folders
        self._limits = Limits(weaker=weaker, **{name: getattr(config, name) for name in _LIMITS})
        self._process: ChildProcess | None = None
        self.layers: tuple[Layer, ...] = ()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.running

    async def start(self) -> None:
        """Raises LayerRefused, or WorkerLost after `start_timeout_s`."""
        await self.end()
        words = (sys.executable, *_FLAGS, "-c", COMMAND)
        try:
            self._process = await ChildProcess.start_plain(words, _environment(), "/")
        except OSError as error:
            raise WorkerLost(str(error)) from error
        paths = sysconfig.get_paths()
        first = {
            "limits": asdict(self._limits),
            "preload": self._config.preload,
            "package_paths": sorted({paths["purelib"], paths["platlib"], *self._folders}),
        }
        answer = await self._within(self._config.start_timeout_s, self._ask(first))
        if "refused" in answer:
            await self.end()
            raise LayerRefused(str(answer["refused"]), str(answer["why"]))
        self.layers = tuple(Layer(name=name, active=on, remark=remark) for name, on, remark in answer["layers"])

    async def run(self, code: str, deadline_s: float) -> Execution:
        """Raises WorkerLost; the process is gone then, and all that it started."""
        ran, output, report = await self._within(deadline_s, self._execute(code))
        try:
            outcome, text = frames.tell(ran, output, report, self._limits)
        except frames.Broken as broken:
            await self.end()
            raise WorkerLost(str(broken)) from None
        return Execution(text=text, outcome=Outcome(outcome), seconds=ran.seconds)

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.close(heirs_s=END_S)  # the zygote too

    async def _within(self, deadline_s: float, exchange: Awaitable[T]) -> T:
        """What the worker says. Raises WorkerLost after the deadline, or where it died or spoke nonsense."""
        try:
            async with asyncio.timeout(deadline_s):
                return await exchange
        except TimeoutError:
            reason = f"no answer within {deadline_s:g} s"
        except (OSError, EOFError, ValueError, TypeError, RuntimeError) as error:  # uvloop's, of a closed pipe
            last_line = await self._process.last_line() if self._process is not None else ""
            reason = f"{type(error).__name__}: {last_line or error}"
        except asyncio.CancelledError:  # or the next caller would get this answer
            await self.end()
            raise
        await self.end()
        raise WorkerLost(reason)

    async def _execute(self, code: str) -> tuple[frames.RunReport, bytes, bytes]:
        """How it ran, what it printed, its report: bytes that the code may have chosen."""
        ran = frames.RunReport(**await self._ask({"code": code}))
        return ran, await self._read(ran.output), await self._read(ran.report)

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        await self._started.write(frames.pack(message))
        size = int.from_bytes(await self._read(frames.HEADER), "big")
        return dict(json.loads(await self._read(size)))

    async def _read(self, size: int) -> bytes:
        if size > _LARGEST_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        return await self._started.output.readexactly(size)

    @property
    def _started(self) -> ChildProcess:
        if self._process is None:
            raise EOFError("not started")
        return self._process


def _environment() -> dict[str, str]:
    """Nothing of ours but where libraries lie. One thread: a process with more cannot be forked safely."""
    inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    one_thread = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**inherited, **one_thread, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
