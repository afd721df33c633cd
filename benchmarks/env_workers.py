"""A process of environments behind our own socket, compared with the same one as a Ray actor.

    python benchmarks/env_workers.py

Both serve `actors.env_server.EnvServer`. The steps of the world that they play answer at once, wait or block.
Every figure is a median of `--rounds`, the rates are of `--calls`; Ray runs on this machine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import ray
from report import Report, parser

from actors.env_server import EnvServer, answer
from actors.env_worker import EnvWorker, EnvWorkerSpec
from actors.scoring import ScoringSpec
from envs.base import World
from rlsys.rollout import Env
from rlsys.types import Message, Step, Task

ROOTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
SPEC = EnvWorkerSpec(
    worker="bench", scoring=ScoringSpec(grader_workers=1, grader_deadline_s=5.0), block_s=3600.0, start_timeout_s=600.0
)
REPLY = Step(reply=Message(role="user", content="word " * 100))
IN_FLIGHT = 64
TASK = Task(task_id="t", question="?")


@dataclass(frozen=True, kw_only=True)
class IdleConfig:
    name: str = "env_workers.IdleWorld"


class IdleWorld(World):
    def __init__(self, config: IdleConfig) -> None: ...

    def env(self, task: Task) -> IdleEnv:
        return IdleEnv()


def block() -> None:
    time.sleep(3600)


def note_time(file: str) -> None:
    Path(file).write_text(repr(time.time()))


def wait_until(condition: Callable[[], Any]) -> Any:
    """Polls the condition, and returns its first value that is not empty."""
    while not (value := condition()):
        time.sleep(0.001)
    return value


class IdleEnv(Env):
    stop_strings = ()

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content=str(os.getpid())),)

    async def step(self, text: str, *, turns_left: int) -> Step:
        command, _, file = text.partition(" ")
        if command == "block":
            block()
        if command == "wait":
            try:
                await asyncio.sleep(3600)
            finally:
                note_time(file)
        return REPLY


class EnvActor:
    """What a Ray actor in the place of `env_server.main` would be."""

    def __init__(self, scoring: ScoringSpec) -> None:
        self._server = EnvServer(scoring)

    async def call(self, method: str, *arguments: Any) -> Any:
        return await answer(getattr(self._server, method)(*arguments), method)


class Socket:
    """Our own."""

    def __init__(self) -> None:
        self._group: Any = SimpleNamespace(number=1, what="bench", failed=None, suspect=False)
        self.process = EnvWorker(SPEC, lambda _: None)

    def ask(self, method: str, *arguments: Any) -> Awaitable[Any]:
        return self.process.ask(self._group if method != "prepare" else None, method, *arguments)

    async def stop(self) -> None:
        await self.process.stop()


class Actor:
    """Ray's."""

    def __init__(self) -> None:
        placed = ray.remote(EnvActor).options(num_cpus=0, max_restarts=0, max_concurrency=4096)
        self._handle = placed.remote(SPEC.scoring)

    async def ask(self, method: str, *arguments: Any) -> Any:
        group = () if method == "prepare" else (1,)
        ref = self._handle.call.remote(method, *group, *arguments)
        try:
            kind, value = await ref
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise
        if kind != "value":
            raise RuntimeError(value)
        return value

    async def stop(self) -> None:
        ray.kill(self._handle)


async def begin(kind: Any) -> tuple[Any, psutil.Process, float]:
    """One that has answered, its process, and the seconds until then."""
    began = time.monotonic()
    process = kind()
    await process.ask("prepare", ("world", "reward"), IdleConfig(), None, frozenset())
    took = time.monotonic() - began
    (first, *_), *_ = await process.ask("open", 0, "world", TASK)
    return process, psutil.Process(int(first.content)), took


async def call_costs(process: Any, calls: int) -> tuple[float, float, float]:
    """(ms of a call that is alone, calls per second of many at a time, ms of this process's CPUs for one of those)."""

    async def step() -> None:
        await process.ask("step", 0, "answer", {"turns_left": 3})

    alone = []
    for _ in range(calls // 10):
        began = time.perf_counter()
        await step()
        alone.append(time.perf_counter() - began)

    async def many() -> None:
        for _ in range(calls // IN_FLIGHT):
            await step()

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(many() for _ in range(IN_FLIGHT)))
    wall, cpu, num_calls = time.perf_counter() - began, time.process_time() - cpu, calls // IN_FLIGHT * IN_FLIGHT
    return 1e3 * statistics.median(alone), num_calls / wall, 1e3 * cpu / num_calls


async def cancelled_after(process: Any, folder: Path) -> float:
    """Seconds from giving up a call until its code hears of it."""
    file = folder / f"{time.monotonic_ns()}"
    waiting = asyncio.ensure_future(process.ask("step", 0, f"wait {file}", {"turns_left": 3}))
    await asyncio.sleep(0.3)
    at = time.time()
    waiting.cancel()
    heard = await asyncio.to_thread(wait_until, lambda: file.exists() and file.read_text())
    return float(heard) - at


async def death_heard_after(process: Any, its: psutil.Process, folder: Path) -> float:
    """Seconds from its end by SIGKILL until a call that is under way hears of it."""
    waiting = asyncio.ensure_future(process.ask("step", 0, f"wait {folder / 'never'}", {"turns_left": 3}))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    its.kill()
    await asyncio.wait({waiting})
    waiting.exception()
    return time.monotonic() - began


class Worker:
    """Stands for a rollout worker, whose environments are to end with it."""

    async def begin(self, name: str) -> tuple[int, int]:
        self._process, its, _ = await begin(KINDS[name])
        return os.getpid(), its.pid

    async def block(self) -> None:
        await self._process.ask("step", 0, "block", {"turns_left": 3})


async def outlives_by(name: str) -> float:
    """Seconds that a process whose environment blocks it is there after its worker was ended by SIGKILL."""
    worker = ray.remote(Worker).options(num_cpus=0).remote()
    pid, environments = await worker.begin.remote(name)
    blocked = asyncio.ensure_future(asyncio.wrap_future(worker.block.remote().future()))
    await asyncio.sleep(0.5)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: not alive(environments))
    took = time.monotonic() - began
    await asyncio.wait({blocked})
    blocked.exception()
    return took


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


KINDS: dict[str, Callable[[], Any]] = {"socket": Socket, "Ray actor": Actor}


async def measure(report: Report, options: argparse.Namespace) -> None:
    report.head("way", "start s", "one call ms", "calls/s", "CPU ms a call", "MiB", "threads", "cancel ms", "death ms",
                "outlives worker s")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in KINDS.items():
            starts, costs, memory, threads, cancels, deaths = [], [], [], [], [], []
            for _ in range(options.rounds):
                process, its, took = await begin(kind)
                starts.append(took)
                costs.append(await call_costs(process, options.calls))
                memory.append(its.memory_full_info().uss / 2**20)
                threads.append(its.num_threads())
                cancels.append(1e3 * await cancelled_after(process, Path(folder)))
                deaths.append(1e3 * await death_heard_after(process, its, Path(folder)))
                await process.stop()
            ends = [await outlives_by(name) for _ in range(options.rounds)]
            columns = [starts, *zip(*costs, strict=True), memory, threads, cancels, deaths, ends]
            report.row(name, *(statistics.median(column) for column in columns))


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--calls", type=int, default=6400)
    cli.add_argument("--rounds", type=int, default=5)
    options = cli.parse_args()
    sys.path[:0] = ROOTS
    variables = {"PYTHONPATH": os.pathsep.join(ROOTS)}
    ray.init(address="local", include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    with Report(options) as report:
        asyncio.run(measure(report, options))
    ray.shutdown()


if __name__ == "__main__":
    importlib.import_module(Path(__file__).stem).main()  # under a name that the other processes know too
