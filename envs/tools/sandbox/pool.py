"""The Python tool: code in, text out, in processes that can reach nothing and always end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from envs.services.guard import ToolFailed
from envs.tools.sandbox.config import Execution, Layer, Outcome, SandboxConfig
from envs.tools.sandbox.worker import LayerRefused, Worker, WorkerLost
from rlsys.errors import BadInput
from rlsys.types import FailureKind

GRACE_S = 10.0  # a worker that has not answered this long after the deadline of its execution is replaced
_ATTEMPTS = 2


class Sandbox:
    """A pool of warm workers. One per process that plays episodes; `start`, `run` and `close` in one event loop.

    Every text that the code can cause is an `Execution`. Only a broken sandbox raises ToolFailed.
    """

    def __init__(self, config: SandboxConfig, folders: Sequence[str] = ()) -> None:
        """folders: of our own modules in `preload`, those that are in no installed package."""
        self._config = config
        self._folders = folders
        self._weaker = False
        self._workers: list[Worker] = []
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        self._running: set[asyncio.Task[Execution]] = set()

    async def start(self) -> None:
        """Raises BadInput where the host does not give the walls, ToolFailed where a worker cannot start."""
        while True:
            try:
                return await self._start_workers()
            except LayerRefused as refused:
                if self._weaker or not self._config.allow_weaker or refused.layer.startswith("preload="):
                    raise BadInput(_advice(refused)) from refused
                self._weaker = True

    async def run(self, code: str) -> Execution:
        """Raises ToolFailed: the sandbox broke twice, or no worker was free within `queue_timeout_s`."""
        size = len(code.encode("utf-8", "surrogatepass"))
        if size > self._config.code_kb * 1024:
            text = f"ValueError: the code has {size} bytes, at most {self._config.code_kb * 1024} are run"
            return Execution(text=text, outcome=Outcome.ERROR, seconds=0.0)
        if not self._workers:
            raise _make_failure(FailureKind.INFRA, "the sandbox is not started")
        idle = self._idle
        try:
            async with asyncio.timeout(self._config.queue_timeout_s):
                worker = await idle.get()
        except TimeoutError:
            detail = f"no free worker within {self._config.queue_timeout_s:g} s"
            raise _make_failure(FailureKind.TIMEOUT, detail) from None
        if idle is not self._idle:
            idle.put_nowait(worker)  # for the next who waits, to hear the same
            raise _make_failure(FailureKind.INFRA, "the sandbox was closed")
        # A caller that gives up does not stop the execution: it ends by its own deadline and the worker stays warm.
        running = asyncio.create_task(self._execute(worker, code))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    async def close(self) -> None:
        """End all workers and what they run."""
        running, workers = list(self._running), self._workers
        self._workers, self._idle = [], asyncio.Queue()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in workers))

    def describe(self) -> tuple[Layer, ...]:
        """Which walls stand, as the first worker found them. Empty before `start`."""
        return self._workers[0].layers if self._workers else ()

    @property
    def weaker(self) -> bool:
        return self._weaker

    async def _start_workers(self) -> None:
        workers = [
            Worker(self._config, weaker=self._weaker, folders=self._folders) for _ in range(self._config.num_workers)
        ]
        try:
            await workers[0].start()  # one alone finds out whether the host allows it
            results = await asyncio.gather(*(worker.start() for worker in workers[1:]), return_exceptions=True)
            for failed in filter(None, results):  # after all: none may come up behind the end below
                raise failed
        except BaseException as error:
            await asyncio.gather(*(worker.end() for worker in workers))
            if isinstance(error, WorkerLost):
                raise _make_failure(FailureKind.INFRA, f"a worker did not start: {error}") from error
            raise
        self._workers = workers
        for worker in workers:
            self._idle.put_nowait(worker)

    async def _execute(self, worker: Worker, code: str) -> Execution:
        idle = self._idle
        reason = ""
        try:
            for _ in range(_ATTEMPTS):
                try:
                    if not worker.alive:
                        await worker.start()
                    return await worker.run(code, self._config.timeout_s + GRACE_S)
                except (WorkerLost, LayerRefused) as lost:
                    reason = str(lost)
            raise _make_failure(FailureKind.INFRA, reason)
        finally:
            idle.put_nowait(worker)


async def probe(config: SandboxConfig) -> tuple[Layer, ...]:
    """What this host gives: the walls of one worker put up for real. Raises nothing for what is forbidden.

    Where namespaces are refused the first row says which and why, and the rest is the weaker mode's.
    """
    refused: tuple[Layer, ...] = ()
    for weaker in (False, True):
        worker = Worker(config, weaker=weaker)
        try:
            await worker.start()
            return refused + worker.layers
        except LayerRefused as error:
            refused += (Layer(name=error.layer, active=False, remark=error.why),)
        finally:
            await worker.end()
    return refused


def _make_failure(kind: FailureKind, detail: str) -> ToolFailed:
    return ToolFailed(kind, "tool:sandbox", detail)


def _advice(refused: LayerRefused) -> str:
    if refused.layer.startswith("preload="):
        return f"sandbox.{refused.layer}: expected an installed module ({refused.why})"
    return (
        f"the sandbox needs the {refused.layer}, which this host forbids ({refused.why}): allow it (docs/sandbox.md), "
        "or set sandbox.allow_weaker=true"
    )
