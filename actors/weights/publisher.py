"""Weights to the rollout workers: each version reaches every engine, and is compared with the learner there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayError

from actors.weights.check import LoadCheck, WeightUpdate, differs, measure
from actors.weights.distributor import Superseded, WeightDistributor
from actors.worker import LoadResult
from actors.worker_registry import PoolOptions, State, WorkerRecord, WorkerRegistry, close
from rlsys.alternating_cards import AlternatingCards, Side
from rlsys.deadlines import SLOWEST, moved_s
from rlsys.errors import RunFailed
from rlsys.system.calls import DELIVERY, WORKER_CALL, call
from rlsys.system.incidents import Incident, warn
from rlsys.system.weight_folder import WeightFolder

log = logging.getLogger("rlsys.pool")

LOOK_S = 0.5  # between two looks whether any worker has a version


@dataclass(slots=True)
class Pace:
    """How long a delivery may take: as the key says, and longer where the size and the links ask for it."""

    rate: float = SLOWEST  # bytes per second, of the last delivery that came to every engine in time

    def deadline_s(self, configured_s: float, size: int) -> float:
        return max(configured_s, moved_s(size, self.rate))

    def note(self, size: int, seconds: float) -> None:
        if size > 0 and seconds > 0:
            self.rate = size / seconds


class WeightPublisher:
    def __init__(
        self,
        registry: WorkerRegistry,
        options: PoolOptions,
        distributor: WeightDistributor | None,
        dead: Callable[[WorkerRecord, Any, Exception], None],
        cards: AlternatingCards | None = None,
    ) -> None:
        """distributor: None where nothing will be published. cards: the engines' cards.

        dead: hears of a worker that a delivery found dead, with the handle that was called and its error.
        """
        self._registry, self._options = registry, options
        self._distributor = distributor
        self._dead, self._cards = dead, cards or AlternatingCards()
        self.current: WeightUpdate | None = None
        self.gone = asyncio.Event()  # an engine found the current version on no node: it has to be sent again
        self.lost: tuple[int | None, str] = (None, "")  # the version that was not found last, and why
        self._pace = Pace()

    async def folder_on(self, nodes: Sequence[str]) -> WeightFolder:
        """The run's folder, as ranks on these nodes are to write a version now."""
        assert self._distributor is not None
        await self._distributor.ensure(nodes)
        return self._distributor.folder

    async def publish(self, publication: WeightUpdate) -> list[LoadCheck]:
        """Deliver a version to every worker that is up; those that come up later get it before they serve. Elsewhere
        `sync_weights`.

        A worker that is late serves nothing new until it holds the newest version; half of them are waited for, and of
        the start-up check's weights (a version below 0) all. Raises RunFailed when an engine, loaded twice, still
        computes something else than the learner. A version that is on no node any more (`gone`) is waited for until
        `again` brings it: `WeightSync.publish` sees to that.
        """
        assert self._distributor is not None
        self._begin(publication)
        workers, size, began = self._registry.workers, publication.published.bytes, time.monotonic()
        deadline_s = self._pace.deadline_s(self._options.publish_deadline_s, size)
        refits = {self._registry.run_in_background(self._refit(worker)): worker for worker in self._registry.up}
        _, pending = await asyncio.wait(refits, timeout=deadline_s) if refits else ((), set())
        for worker in (refits[task] for task in pending):
            close(worker, publication.version, f"it did not come within {deadline_s:g} s ({DELIVERY})")
        if not pending:
            self._pace.note(size, time.monotonic() - began)
        canary = publication.version < 0  # of an engine that ignores deliveries, only this one tells
        while pending and (canary or 2 * sum(worker.state is State.READY for worker in workers) < len(refits)):
            # Each has its own deadlines, after which it holds this version or is dead: to continue with one or two of
            # many would keep the learner waiting for longer.
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        await self._registry.ready()  # had every worker died under it, this waits for a restarted one
        await self._distributor.keep(publication.version)
        arrived = [worker.arrival for worker in workers if worker.arrival is not None]
        return [arrival for arrival in arrived if arrival.delivery.version == publication.version]

    def again(self, publication: WeightUpdate) -> None:
        """Deliver the current version again after it was sent again. Workers that hold it already do nothing."""
        self._begin(publication)
        for worker in self._registry.up:  # none waits for the slowest: each opens by itself
            self._registry.run_in_background(self._refit(worker))

    def _begin(self, publication: WeightUpdate) -> None:
        self.current, self.lost = publication, (None, "")
        self.gone.clear()

    @property
    def stranded(self) -> bool:
        """The current version is gone, and no worker serves with it: without another one nothing goes on."""
        version = self.current.version if self.current is not None else None
        serves = any(worker.state is State.READY for worker in self._registry.workers)
        return version is not None and self.lost[0] == version and not serves

    async def unless_stranded(self, task: asyncio.Task[Any]) -> None:
        """Wait until a task that needs the current version is done, or no worker can serve that version any more."""
        while not (task.done() or self.stranded):  # a worker that is lost with its node tells nobody
            await asyncio.wait({task}, timeout=LOOK_S)

    @property
    def carried(self) -> tuple[int, float]:
        """Of the newest version: bytes that crossed the network, and the seconds until the last of them."""
        return self._distributor.transfer_progress() if self._distributor is not None else (0, 0.0)

    async def renew(self, worker: WorkerRecord) -> None:
        """Give a worker that came back the newest version, where there is one yet."""
        if self.current is not None:
            await self._refit(worker)

    async def _refit(self, worker: WorkerRecord) -> None:
        """Load the current weights into one worker and open it, unless it dies or computes something else.

        One at a time for each worker, and always the newest version: a delivery that found it coming back to life may
        be waiting here too.
        """
        async with self._cards.hold(Side.ENGINES), worker.refitting:
            handle = worker.handle
            attempts, last_version = 0, -2
            while worker.handle is handle and worker.state in (State.STALE, State.READY):
                publication = self.current
                assert publication is not None
                if publication.version != last_version:
                    attempts, last_version = 0, publication.version
                loaded = worker.arrival.delivery.version if worker.arrival and worker.state is State.READY else None
                if loaded == publication.version:
                    return
                assert self._distributor is not None
                try:  # the engine continues to generate meanwhile
                    published = await self._distributor.bring(publication.published, worker.node)
                except Superseded:
                    continue
                except RunFailed as error:
                    if self.current is publication:
                        close(worker, publication.version, str(error))
                        self.lost = publication.version, str(error)
                        self.gone.set()
                        return
                    continue
                await self._registry.turnstile.enter()
                try:
                    label = f"{worker.spec.name} loading version {publication.version}"
                    loading = handle.load_weights.remote(published, publication.probe)
                    # The load and the probe each take theirs.
                    timeout_s = max(2 * self._options.call_timeout_s, moved_s(publication.published.bytes))
                    delivery: LoadResult = await call(loading, label, timeout_s, WORKER_CALL)
                except (RayError, RunFailed) as error:
                    if self.current is publication:
                        self._dead(worker, handle, error)
                        return
                    continue  # it was forgotten when a newer version came: that one is loaded instead
                arrival = measure(delivery, publication)
                if arrival.refusal:
                    attempts += 1
                    name, version = worker.spec.name, publication.version
                    text = f"{name} differs from the learner on version {version}: {arrival.refusal}"
                    warn(log, Incident(kind="refused", who=name, text=text))
                    if attempts == 2:
                        await self._registry.fail(differs(name, version, arrival.refusal))
                        return
                    close(worker, version, "it differs from the learner, and is loaded once more")
                elif self.current is publication and worker.handle is handle:
                    worker.arrival = arrival
                    await self._registry.open(worker)
                    return
