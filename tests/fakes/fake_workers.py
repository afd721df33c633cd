"""A rollout pool over fake actors: workers whose faults are written into the test."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from actors.pool import RolloutPool
from actors.scoring import ScoringSpec
from actors.specs import IDLE
from actors.weights.check import WeightUpdate
from actors.worker import LoadResult, WorkerSpec, WorkerStatus
from actors.worker_registry import PoolOptions
from envs.services.stats import ToolStats
from rlsys.alternating_cards import AlternatingCards
from rlsys.errors import RunFailed
from rlsys.rollout import RolloutPlan
from rlsys.summaries import summarize_group
from rlsys.system.weight_folder import WeightManifest
from rlsys.types import Ticket
from tests.fakes.parts import bandit_group
from tests.makers.made import engine_spec, plan

LIMIT = 0.1  # of the gap on a version
PLAY = plan(group_size=2)
OPTIONS = PoolOptions(
    cpus=1, gpus=0, env_vars={}, start_timeout_s=5, call_timeout_s=5, in_flight=64, infra_attempts=3,
    min_workers=1, placement_timeout_s=0.05,
)  # fmt: skip


@dataclass
class Script:
    """What the workers do, by the test's word. A hook gets the worker and what it was asked."""

    play: Callable[[Any, Ticket], Awaitable[None]] | None = None
    load: Callable[[Any, int], Awaitable[None]] | None = None
    start: Callable[[Any], Awaitable[None] | None] | None = None
    connect: Callable[[Any, Mapping[str, str]], None] | None = None
    ping: Callable[[Any], Awaitable[None]] | None = None
    sleep: Callable[[Any], None] | None = None
    still: Callable[[int], float | None] = lambda sequence: 0.0
    said: float = 0.0  # log-probability of the probe
    starts: Counter[str] = field(default_factory=Counter)
    played: list[tuple[str, int]] = field(default_factory=list)  # worker and sequence, as they began
    stopped: list[str] = field(default_factory=list)
    lost: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tools: dict[str, dict[str, ToolStats]] = field(default_factory=dict)
    idle_s: dict[str, float] = field(default_factory=dict)

    @property
    def worker(self) -> type:
        return type("ScriptedWorker", (_Worker,), {"script": self})


class _Worker:
    script: Script
    die: Callable[[], None]  # set by whoever holds it

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec, self.name = spec, spec.name
        self.version: int | None = None
        self.generated = self.pings = 0
        self.asleep = False
        self.heard: Mapping[str, str] = {}

    async def start(self) -> WorkerStatus:
        self.script.starts[self.name] += 1
        if self.script.start is not None:
            started = self.script.start(self)
            if started is not None:
                await started
        return await self.ping()

    async def connect(self, addresses: Mapping[str, str]) -> None:
        if self.script.connect is not None:
            self.script.connect(self, addresses)
        self.heard = addresses

    async def run_group(self, ticket: Ticket, plan: RolloutPlan) -> Any:
        self.script.played.append((self.name, ticket.sequence))
        if self.script.play is not None:
            await self.script.play(self, ticket)
        await asyncio.sleep(0)
        self.generated += plan.group_size
        group = bandit_group(ticket, plan, [0.0, 0.0], self.version or 0, self.name)
        return summarize_group(group), group

    async def idle_s(self, purpose: str, sequence: int, attempt: int) -> float | None:
        return self.script.still(sequence)

    async def load_weights(self, published: WeightManifest, probe: Sequence[Sequence[int]]) -> LoadResult:
        if self.script.load is not None:
            await self.script.load(self, published.version)
        self.version = published.version
        return LoadResult(version=published.version, seconds=0.0, probe_logprobs=((self.script.said,),))

    async def adopt(self) -> None:
        self.version = 0

    async def ping(self) -> WorkerStatus:
        self.pings += 1
        if self.script.ping is not None:
            await self.script.ping(self)
        return WorkerStatus(
            pid=1, log="", version=self.version, generated_tokens=self.generated, busy_s=0.0, alive_s=1.0, rss_mb=1.0,
            engine_cpu_s=2.0, own_cpu_s=1.0, engine=IDLE, tools=self.script.tools.get(self.name, {}),
            worlds_lost=self.script.lost.get(self.name, ()), requests=3, idle_s=self.script.idle_s.get(self.name, 0.0),
        )  # fmt: skip

    async def sleep(self) -> None:
        self.asleep = True
        if self.script.sleep is not None:
            self.script.sleep(self)

    async def wake(self) -> None:
        self.asleep = False

    async def stop(self) -> None:
        self.script.stopped.append(self.name)

    def __ray_call__(self, function: Any) -> str:
        return "here"


class FakeDistributor:
    """Of new weights: `brings` says what becomes of a version on its way to a worker."""

    def __init__(self, brings: Callable[[WeightManifest], Awaitable[None]] | None = None) -> None:
        self.brings, self.folder, self.stops = brings, "their folder", 0
        self.kept: list[int] = []
        self.ensured: list[list[str]] = []

    async def ensure(self, nodes: Iterable[str]) -> None:
        self.ensured.append(list(nodes))

    async def bring(self, published: WeightManifest, node: str) -> WeightManifest:
        if self.brings is not None:
            await self.brings(published)
        return published

    async def keep(self, version: int) -> None:
        self.kept.append(version)

    def transfer_progress(self) -> tuple[int, float]:
        return 3, 0.5

    async def stop(self) -> None:
        self.stops += 1


def version(number: int, expected: float = 0.0) -> WeightUpdate:
    return WeightUpdate(published=WeightManifest(version=number), probe=((1, 2),), expected=((expected,),), limit=LIMIT)


def make_pool(
    script: Script,
    workers: int = 1,
    distributor: FakeDistributor | None = None,
    cards: AlternatingCards | None = None,
    **options: Any,
) -> RolloutPool:
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    seconds: dict[str, Any] = {"stall_s": 60.0, "block_s": 30.0, "start_timeout_s": 60.0}
    specs = [
        WorkerSpec(name=f"w{index}", engine=engine_spec(), run_seed=0, scoring=scoring, **seconds)
        for index in range(workers)
    ]
    carrier: Any = distributor or FakeDistributor()
    return RolloutPool(specs, replace(OPTIONS, **options), script.worker, carrier, cards)


def run(
    script: Script,
    scenario: Callable[[RolloutPool], Awaitable[None]],
    workers: int = 1,
    distributor: FakeDistributor | None = None,
    **options: Any,
) -> None:
    async def whole() -> None:
        pool = make_pool(script, workers, distributor, **options)
        await pool.start()
        try:
            await scenario(pool)
        finally:
            await pool.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def refused(*_: Any) -> Any:
    raise RunFailed("no way there")
