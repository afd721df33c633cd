"""The sandbox's pool when its parts die, hang or are wanted by more callers than there are workers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psutil
import pytest

from envs.services.guard import ToolFailed
from envs.tools.sandbox import Execution, Sandbox, SandboxConfig, pool, worker
from rlsys.types import FailureKind

T = TypeVar("T")
FAST: dict[str, Any] = {"preload": [], "allow_weaker": True}


def with_sandbox(use: Callable[[Sandbox], Awaitable[T]], **config: Any) -> T:
    async def main() -> T:
        sandbox = Sandbox(SandboxConfig(**{**FAST, "workers": 1, **config}))
        await sandbox.start()
        try:
            return await use(sandbox)
        finally:
            await sandbox.close()

    return asyncio.run(main())


def test_the_same_code_prints_the_same_text_in_every_worker() -> None:
    code = (
        "import random, numpy, sympy.core.random\n"
        "print(random.random(), numpy.random.rand(), sympy.core.random.rng.random(), {'a', 'b', 'c'}, hash('x'))"
    )

    async def use(sandbox: Sandbox) -> list[Execution]:
        return await asyncio.gather(*(sandbox.run(code) for _ in range(6)))

    results = with_sandbox(use, workers=2, preload=["numpy", "sympy"])
    assert len({result.text for result in results}) == 1 and results[0].outcome == "ok"


def test_more_calls_than_workers_wait_their_turn() -> None:
    async def use(sandbox: Sandbox) -> list[Execution]:
        return await asyncio.gather(*(sandbox.run(f"{i} * 2") for i in range(12)))

    assert [result.text for result in with_sandbox(use, workers=2)] == [str(i * 2) for i in range(12)]


def test_a_worker_killed_from_outside_is_replaced_and_the_call_repeated() -> None:
    async def use(sandbox: Sandbox) -> str:
        call = asyncio.create_task(sandbox.run("import time; time.sleep(0.3); 'done'"))
        await asyncio.sleep(0.1)
        _kill_workers()
        return (await call).text

    assert with_sandbox(use) == "'done'"


def test_a_worker_that_dies_twice_is_a_typed_failure_and_the_pool_recovers() -> None:
    async def use(sandbox: Sandbox) -> str:
        call = asyncio.create_task(sandbox.run("import time; time.sleep(4)"))
        while not call.done():
            _kill_workers()
            await asyncio.sleep(0.01)
        with pytest.raises(ToolFailed) as failed:
            await call
        assert failed.value.failure.kind is FailureKind.INFRA
        return (await sandbox.run("1")).text

    assert with_sandbox(use) == "1"


def test_a_worker_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "GRACE_S", 0.2)

    async def use(sandbox: Sandbox) -> str:
        for process in _workers():
            process.send_signal(signal.SIGSTOP)
        return (await sandbox.run("'answered'")).text

    assert with_sandbox(use, timeout_s=0.5) == "'answered'"


def test_a_caller_that_gives_up_does_not_disturb_the_next() -> None:
    async def use(sandbox: Sandbox) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await sandbox.run("import time; time.sleep(0.4); 'first'")
        return (await sandbox.run("'second'")).text

    assert with_sandbox(use) == "'second'"


def test_no_free_worker_in_time_is_a_typed_failure() -> None:
    async def use(sandbox: Sandbox) -> FailureKind:
        first = asyncio.create_task(sandbox.run("import time; time.sleep(0.5)"))
        await asyncio.sleep(0.05)
        with pytest.raises(ToolFailed) as failed:
            await sandbox.run("1")
        await first
        return failed.value.failure.kind

    assert with_sandbox(use, queue_timeout_s=0.1) is FailureKind.TIMEOUT


def test_close_ends_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        sandbox = Sandbox(SandboxConfig(workers=4, **FAST))
        await sandbox.start()
        call = asyncio.create_task(sandbox.run("import time; time.sleep(4)"))
        await asyncio.sleep(0.1)
        await sandbox.close()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ToolFailed, match="not started"):
            await sandbox.run("1")

    asyncio.run(main())
    assert (_workers(), caplog.messages) == ([], [])  # asyncio warns of a process that is reaped behind its back


def test_a_start_that_fails_leaves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    start = worker.Worker.start
    started: list[worker.Worker] = []

    async def third_fails(self: worker.Worker) -> None:
        started.append(self)
        if len(started) == 3:
            raise worker.WorkerLost("no memory")
        await start(self)

    monkeypatch.setattr(worker.Worker, "start", third_fails)

    async def main() -> None:
        with pytest.raises(ToolFailed, match="a worker did not start: no memory"):
            await Sandbox(SandboxConfig(workers=4, **FAST)).start()
        assert _workers() == []

    asyncio.run(main())


def test_who_waits_when_it_closes_is_told_and_starts_nothing() -> None:
    async def main() -> None:
        sandbox = Sandbox(SandboxConfig(workers=1, **FAST))
        await sandbox.start()
        calls = [asyncio.create_task(sandbox.run("import time; time.sleep(4)")) for _ in range(3)]
        await asyncio.sleep(0.1)
        await sandbox.close()
        _, *waiting = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
        assert [str(failed) for failed in waiting] == ["the sandbox was closed"] * 2
        assert _workers() == []

    asyncio.run(main())


def _workers() -> list[psutil.Process]:
    """Every launcher and zygote below this process."""
    below = psutil.Process().children(recursive=True)
    return [process for process in below if _is_worker(process)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and "zygote" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _kill_workers() -> None:
    for process in _workers():
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
