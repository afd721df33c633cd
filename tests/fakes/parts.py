"""Stand-ins for the expensive parts, for tests of everything around them. Nothing outside tests/ imports this."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from actors.specs import IDLE
from actors.weights.check import LoadCheck, WeightUpdate
from actors.worker import LoadResult, WorkerSpec, WorkerStatus
from learners.algorithms import make_algorithm
from rlsys.batch import UpdateReport, build_batch
from rlsys.metrics import Mean
from rlsys.plan import BatchPlan
from rlsys.probe import Probe, ProbeValues
from rlsys.rollout import RolloutPlan
from rlsys.summaries import GroupRef, TrajectorySummary, refer_to, summarize_group
from rlsys.system.supervisor import Supervised
from rlsys.system.weight_folder import WeightFolder, WeightManifest
from rlsys.types import EpisodeEnd, Failure, FailureKind, Group, Message, Ticket, TurnStop
from tests.makers import made

PROMPT, RIGHT, WRONG = 7, 1, 0


def bandit_group(
    ticket: Ticket, plan: RolloutPlan, logits: Sequence[float], version: int, worker: str = "fake"
) -> Group:
    """One token per episode: RIGHT is rewarded. Sampled from `logits`, seeded by the ticket."""
    logp = torch.log_softmax(torch.tensor(logits), 0).tolist()
    rng = random.Random(f"{plan.purpose}:{ticket.sequence}:{ticket.attempt}")
    trajectories = []
    for sibling in range(plan.group_size):
        action = (
            max((0, 1), key=lambda a: logp[a])
            if plan.temperature == 0
            else int(rng.random() < 2.718281828 ** logp[RIGHT])
        )
        sampled = {"version": version, "logprobs": (logp[action],), "stop": TurnStop.EOS}
        trajectories.append(
            made.trajectory(
                made.turn((PROMPT,), (action,), text=str(action), **sampled),
                task=ticket.task,
                sibling=sibling,
                messages=(Message(role="user", content="?"), Message(role="assistant", content=str(action))),
                reward=float(action == RIGHT),
            )
        )
    return made.group(ticket, *trajectories, worker=worker)


class BanditLearner:
    """A policy of two logits, trained by the real algorithms."""

    node_ids = ("here",)

    def __init__(self) -> None:
        self.logits = torch.zeros(2, requires_grad=True)
        self.algorithm: Any = None
        self.lr = 0.0
        self.updates = 0
        self.losing: set[int] = set()  # groups, by sequence, whose node dies before rows are made of them
        self.life = Supervised[str]("the learner", self._create, self._started, str, handle="ranks", starts=1)
        self.loaded: list[bool] = []  # of each load: the optimizers alone?
        self.on_rows: Callable[[int, int], None] = lambda row, total: None

    @property
    def restarts(self) -> int:
        return self.life.restarts

    def _create(self) -> str:
        self._set((0.0, 0.0))
        return "ranks"

    async def _started(self, ranks: str) -> None: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def check(self, what: str) -> None: ...

    async def restart(self) -> None:
        await self.life.restart()

    async def begin(
        self,
        model_path: str,
        learner: Any,
        algorithm: Any,
        *,
        total_steps: int,
        temperature: float,
        reference_path: str | None = None,
        start: Any = None,
    ) -> None:
        saved = Path(model_path) / "logits.json"
        if saved.exists():
            self._set(json.loads(saved.read_text()))
        self.algorithm, self.lr = make_algorithm(algorithm), learner.lr

    def _set(self, values: Sequence[float]) -> None:
        self.logits = torch.tensor(values, requires_grad=True)

    async def build(self, plan: BatchPlan) -> frozenset[int]:
        await asyncio.sleep(0)
        lost = self.losing & plan.sources.keys()
        self.losing -= lost
        self.built, self.num_loss_tokens = build_batch(plan, plan.sources), plan.num_loss_tokens
        return frozenset(lost)

    async def update(self, version: int) -> UpdateReport:
        await asyncio.sleep(0)
        assert version == self.built.version
        self.logits.grad = None
        for row in self.built.rows:
            logp = torch.log_softmax(self.logits, 0)[row.token_ids.clamp(max=1)]
            entropy = torch.zeros_like(logp)
            self.algorithm.loss(logp, entropy, row, denominator=float(self.num_loss_tokens)).loss.backward()
        assert self.logits.grad is not None
        with torch.no_grad():
            self.logits -= self.lr * self.logits.grad
        self.updates += 1
        return UpdateReport(
            applied=True, metrics={"learner/grad_norm": Mean(float(self.logits.grad.norm()))}, seconds=0.0
        )

    async def leave(self) -> int | None:
        return None  # as one that is past its optimizer step

    async def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[float(self.logits[0].detach())] * max(len(ids) - 1, 1) for ids in token_ids]

    async def export(self, folder: WeightFolder, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        with self._noise(probe):
            published = folder.send(version, [lambda: {"logits": self.logits.detach()}], 0, 1)
        return published, await self.measure(probe)

    async def measure(self, probe: Probe) -> ProbeValues:
        with self._noise(probe):
            logprobs = await self.logprobs(probe.samples)
        return ProbeValues(logprobs=logprobs, rounded=logprobs)

    @contextmanager
    def _noise(self, probe: Probe) -> Iterator[None]:
        true = self.logits.detach().clone()
        self._set((true + 20 * probe.noise).tolist())
        yield
        self._set(true.tolist())

    async def snapshot(self, folder: Path, tokenizer_from: str) -> None:
        await asyncio.sleep(0.001)  # everybody else but the stepper goes on meanwhile
        self.copied = folder, self.logits.tolist()

    async def write(self) -> None:
        await asyncio.sleep(0.002)  # and now the stepper too
        folder, logits = self.copied
        (folder / "hf").mkdir(parents=True)
        (folder / "hf" / "logits.json").write_text(json.dumps(logits))

    async def load(self, folder: Path, *, optimizers_alone: bool = False) -> None:
        self.loaded.append(optimizers_alone)
        self._set(json.loads((folder / "hf" / "logits.json").read_text()))


def received(published: WeightManifest) -> list[float]:
    """The logits that `BanditLearner` sent."""
    WeightFolder.check(published)
    ((_, logits),) = WeightFolder.receive(published)
    return logits.tolist()


class BanditPool:
    """Engines that hold the logits last published; episodes take a random number of loop turns."""

    def __init__(
        self,
        *,
        fail: Callable[[Ticket], bool] = lambda _: False,
        deaf: bool = False,
        publish_s: float = 0.0,
    ) -> None:
        self.logits: list[float] = [0.0, 0.0]
        self.version = 0
        self.publisher, self.carried = self, (0, 0.0)
        self.restarts = {"fake": 0}
        self.lost_tokens = self.lost = 0
        self.published: list[int] = []
        self.gone = asyncio.Event()
        self.weights: WeightFolder
        self._fail, self._deaf, self._publish_s = fail, deaf, publish_s

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def folder_on(self, nodes: Sequence[str]) -> WeightFolder:
        return self.weights

    async def publish(self, publication: WeightUpdate) -> list[LoadCheck]:
        from rlsys.errors import RunFailed

        await asyncio.sleep(self._publish_s)
        if not self._deaf:
            self.logits = received(publication.published)
        self.version = publication.version
        self.published.append(publication.version)
        gap = max(abs(value - self.logits[0]) for values in publication.expected for value in values)
        if gap > 0.1:
            raise RunFailed(f"fake: the mean gap in log-probability is {gap}")
        delivery = LoadResult(version=self.version, seconds=0.0, probe_logprobs=())
        return [LoadCheck(delivery=delivery, gap_mean=gap, gap_max=gap)]

    async def unless_stranded(self, task: asyncio.Task[Any]) -> None:
        await asyncio.wait({task})

    async def run(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> GroupRef:
        return refer_to(await self.group(ticket, plan, on_retry))

    async def whole(self, group: GroupRef) -> Group:
        return group.source

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group:
        version, logits = self.version, list(self.logits)
        for _ in range(random.Random(ticket.sequence).choice([0, 1, 2, 40])):
            await asyncio.sleep(0)
        group = bandit_group(ticket, plan, logits, version)
        if self._fails(ticket, plan):
            failure = Failure(kind=FailureKind.INFRA, where="fake", detail="it died")
            from dataclasses import replace

            return replace(
                group,
                trajectories=tuple(
                    replace(t, turns=(), reward=failure, end=EpisodeEnd.FAILED) for t in group.trajectories
                ),
            )
        return group

    def _fails(self, ticket: Ticket, plan: RolloutPlan) -> bool:
        return self._fail(ticket)

    async def status(self) -> list[WorkerStatus]:
        return []


class OneNode:
    """A `WeightDistributor` of one node: versions lie where they were sent."""

    def __init__(self, folder: WeightFolder) -> None:
        self.folder = folder

    async def ensure(self, nodes: Iterable[str]) -> None: ...

    async def bring(self, published: WeightManifest, node: str) -> WeightManifest:
        return published

    async def keep(self, version: int) -> None:
        self.folder.keep(version)

    def transfer_progress(self) -> tuple[int, float]:
        return 0, 0.0

    async def stop(self) -> None:
        self.folder.close()


class FakeWorker:
    """A rollout worker for real Ray actors. Faults are files in the folder that its model_path names."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.version: int | None = None
        self.logits = [0.0, 0.0]
        self.faults = Path(spec.engine.model_path)
        self.generated = 0

    async def start(self) -> WorkerStatus:
        starts = self.faults / f"starts-{self.spec.name}"
        starts.write_text(str(int(starts.read_text()) + 1 if starts.exists() else 1))
        return await self.ping()

    async def connect(self, addresses: Mapping[str, str]) -> None:
        if addresses:
            (self.faults / f"services-{self.spec.name}").write_text(json.dumps(addresses))

    async def run_group(self, ticket: Ticket, plan: RolloutPlan) -> tuple[tuple[TrajectorySummary, ...], Group]:
        if self.version is None:
            raise RuntimeError("stale worker was asked to serve")
        if self._take(f"die-{self.spec.name}"):
            os._exit(1)
        if self._take(f"hang-{self.spec.name}"):
            time.sleep(3600)  # the whole event loop: pings go unanswered too
        self.generated += plan.group_size
        await asyncio.sleep(0.01)
        group = bandit_group(ticket, plan, self.logits, self.version, self.spec.name)
        return summarize_group(group), group

    def _take(self, name: str) -> bool:
        """A fault strikes once."""
        try:
            (self.faults / name).unlink()
        except FileNotFoundError:
            return False
        return True

    async def load_weights(self, published: WeightManifest, probe: Sequence[Sequence[int]]) -> LoadResult:
        if self._take(f"die-loading-{self.spec.name}"):
            os._exit(1)
        while (self.faults / f"slow-{self.spec.name}").exists():
            await asyncio.sleep(0.02)
        self.logits = received(published)
        self.version = published.version
        return LoadResult(
            version=published.version,
            seconds=0.0,
            probe_logprobs=tuple((self.logits[0],) for _ in probe),
        )

    async def adopt(self) -> None:
        self.version = 0

    async def ping(self) -> WorkerStatus:
        return WorkerStatus(
            pid=os.getpid(),
            log="",
            version=self.version,
            generated_tokens=self.generated,
            busy_s=0.0,
            alive_s=1.0,
            rss_mb=1.0,
            engine_cpu_s=2.0,
            own_cpu_s=1.0,
            engine=IDLE,
            tools={},
        )

    async def stop(self) -> None: ...
