"""One worker process, seen from the pool: start it, ask it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import sysconfig
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from envs.tools.sandbox.config import Layer, SandboxConfig
from envs.tools.sandbox.jail import frames

_HERE = str(Path(__file__).parent)
_COMMAND = f"import sys; sys.path.insert(0, {_HERE!r}); from jail import zygote; del sys.path[0]; zygote.main()"
_LIMITS = ("timeout_s", "memory_mb", "total_memory_mb", "output_kb", "file_kb", "disk_kb", "processes")
_FLAGS = ("-P", "-s", "-S", "-X", "utf8")  # nothing from the working directory, the user's folder or site-packages
_LARGEST_ANSWER = 1 << 24
_KEPT_STDERR = 2000
_END_S = 10.0


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

    def __init__(self, config: SandboxConfig, *, weaker: bool) -> None:
        self._config = config
        self._weaker = weaker
        self._process: Process | None = None
        self.layers: tuple[Layer, ...] = ()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Raises LayerRefused, or WorkerLost after `start_timeout_s`."""
        await self.end()
        command = (sys.executable, *_FLAGS, "-c", _COMMAND)
        places: dict[str, Any] = {"env": _environment(), "cwd": "/", "start_new_session": True}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, **places
            )
        except OSError as error:
            raise WorkerLost(str(error)) from error
        paths = sysconfig.get_paths()
        first = {
            "limits": {"weaker": self._weaker, **{name: getattr(self._config, name) for name in _LIMITS}},
            "preload": self._config.preload,
            "package_paths": sorted({paths["purelib"], paths["platlib"]}),
        }
        answer = await self.ask(first, self._config.start_timeout_s)
        if "refused" in answer:
            await self.end()
            raise LayerRefused(str(answer["refused"]), str(answer["why"]))
        self.layers = tuple(Layer(name=name, active=on, remark=remark) for name, on, remark in answer["layers"])

    async def ask(self, message: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """One message, one answer. Raises WorkerLost; the process is gone then, and all that it started."""
        try:
            async with asyncio.timeout(deadline_s):
                return await self._exchange(message)
        except TimeoutError:
            reason = f"no answer within {deadline_s:g} s"
        except (OSError, EOFError, ValueError) as error:
            reason = f"{type(error).__name__}: {await self._last_words() or error}"
        except asyncio.CancelledError:  # or the next caller would get this answer
            await self.end()
            raise
        await self.end()
        raise WorkerLost(reason)

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_END_S):
                await process.communicate()  # until the zygote has closed its ends too

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError("not started")
        process.stdin.write(frames.pack(message))
        await process.stdin.drain()
        size = int.from_bytes(await process.stdout.readexactly(frames.HEADER), "big")
        if size > _LARGEST_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        return dict(json.loads(await process.stdout.readexactly(size)))

    async def _last_words(self) -> str:
        """The last line that a dying worker wrote to stderr."""
        process = self._process
        if process is None or process.stderr is None:
            return ""
        try:
            async with asyncio.timeout(1):
                lines = (await process.stderr.read(_KEPT_STDERR * 10)).decode(errors="replace").strip().splitlines()
        except TimeoutError:
            return ""
        return lines[-1][:_KEPT_STDERR] if lines else ""


def _environment() -> dict[str, str]:
    """Nothing of ours but where libraries lie. One thread: a process with more cannot be forked safely."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    one_thread = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**kept, **one_thread, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
