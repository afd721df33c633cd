"""The rollout pool: owns the rollout workers, routes groups to them, and brings the dead ones back.

Each worker is in one state:

    starting --start()--> stale --load_weights()--> ready --died, hung or refused weights--> dead --> starting ...

A worker is found dead by the call that it broke or by a ping with a deadline; it is killed, started again and refitted
with the current weights before it serves. One whose node is gone is `lost` until another node has room for it; the run
goes on as long as `min_workers` are not. Groups in flight on it are started again on another worker with a new attempt
number, `infra_attempts` times at most, then recorded as typed failures.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from actors.arrivals import Arrival, Publication, allowed_gap, differs, measure
from actors.calls import PING_EVERY_S, call, reason
from actors.carriers import Carriers, Superseded, node_of
from actors.members import GONE, Member, PoolOptions, State, close, placed, started
from actors.placement import NoPlace, has_place, while_placed
from actors.specs import EngineFailed
from actors.worker import Delivery, RolloutWorker, WorkerSpec, WorkerStatus
from rlsys.channels.base import WeightChannel
from rlsys.errors import RunFailed
from rlsys.outlines import Outline, Played, played
from rlsys.rollout import RolloutPlan, failed_group
from rlsys.types import Failure, FailureKind, Group, Ticket

log = logging.getLogger("rlsys.pool")

MAX_PAUSE_S = 30.0  # between two looks for a node
MAX_RESTARTS = 5  # of one worker without a single group finished in between: then the run stops with the reason


class RolloutPool:
    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        options: PoolOptions,
        worker: type = RolloutWorker,
        carriers: Carriers | None = None,
    ) -> None:
        """carriers: of a run whose weights lie where a rank wrote them; without, where every worker finds them."""
        self._members = [Member(spec=spec) for spec in specs]
        self._carriers = carriers
        self._options = options
        self._worker = worker
        self._current: Publication | None = None
        self._addresses: Mapping[str, str] = {}
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._adopted = False
        self.failure: RunFailed | None = None

    # -- start and stop ---------------------------------------------------------------------------------------------

    async def start(self, placement: Sequence[Any] | None = None) -> None:
        """Start every worker, each where `placement` says; one that cannot start at all is an error of the run."""
        for member, where in zip(self._members, placement or ["DEFAULT"] * len(self._members), strict=True):
            member.placement = where
        await asyncio.gather(*(self._start(member) for member in self._members))
        self._spawn(self._watch())

    async def _start(self, member: Member) -> None:
        options = self._options
        member.state = State.STARTING
        actor = placed(self._worker, options, member)
        member.handle, member.delivered = actor.remote(member.spec), 0
        start = member.handle.start.remote()
        starting = started(member, start, "starting its engine", options.start_timeout_s)
        member.last_status = await while_placed(starting, member.placement, f"{member.spec.name} starting its engine")
        if self._carriers is not None:
            member.node = await started(member, member.handle.__ray_call__.remote(node_of), "saying where it is", 30.0)
            await self._carriers.ensure([member.node])
        member.state = State.STALE
        await self._connect(member)

    async def connect(self, addresses: Mapping[str, str]) -> None:
        """Tell every worker where the run's services listen, by their names; those that come up later hear it first."""
        self._addresses = addresses
        up = [member for member in self._members if member.state in (State.STALE, State.READY)]
        await asyncio.gather(*(self._connect(member) for member in up))

    async def _connect(self, member: Member) -> None:
        handle = member.handle
        try:
            what = f"{member.spec.name} hearing of the services"
            await call(handle.connect.remote(self._addresses), what, self._options.call_timeout_s)
        except (RayError, RunFailed) as error:
            self._mark_dead(member, handle, reason(error))

    async def stop(self) -> None:
        self._closing = True
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for member in self._members:
            if member.state in (State.STARTING, *GONE) and member.handle is not None:
                ray.kill(member.handle)  # its event loop is busy: it would not hear
                member.handle = None
        alive = [member for member in self._members if member.handle is not None]
        stops: list[Any] = [call(member.handle.stop.remote(), f"{member.spec.name} stopping", 10.0) for member in alive]
        stops += [self._carriers.stop()] if self._carriers is not None else []
        await asyncio.gather(*stops, return_exceptions=True)
        for member in alive:
            ray.kill(member.handle)

    # -- groups -----------------------------------------------------------------------------------------------------

    async def run(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Played:
        """Play one group on the least loaded ready worker; on another one when that dies.

        Its tokens and text stay on the worker's node, and outlive the worker. Raises RunFailed for a bug in what it
        plays, never for a death.
        """
        last = "no worker"
        for attempt in range(self._options.infra_attempts):
            if attempt:
                ticket = replace(ticket, attempt=ticket.attempt + 1)
                on_retry(ticket)
            member = await self._least_loaded()
            member.in_flight += 1
            handle = member.handle
            try:
                what = f"{member.spec.name} playing group {ticket.sequence}"
                # Both are results of the call, so that the driver owns them: what a worker puts itself dies with it.
                seen, source = handle.run_group.options(num_returns=2).remote(ticket, plan)
                outlines: tuple[Outline, ...] = await call(seen, what, self._options.group_timeout_s)
                member.futile = 0
                member.delivered += sum(each.num_sampled + each.discarded_tokens for each in outlines)
                return Played(ticket=ticket, outlines=outlines, source=source)
            except (RayError, RunFailed) as error:
                if isinstance(error, RayTaskError) and not isinstance(error.cause, (EngineFailed, MemoryError)):
                    raise RunFailed(f"{member.spec.name} playing group {ticket.sequence}: {reason(error)}") from error
                self._mark_dead(member, handle, reason(error))
                # Where a ping had it ended, Ray's error says no more than that it was killed.
                last = f"{member.spec.name}: {member.died_of or reason(error)}"
            finally:
                member.in_flight -= 1
                await self._notify()
        return played(failed_group(ticket, plan, Failure(kind=FailureKind.INFRA, where="rollout", detail=last)))

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group:
        """Play one group and bring it here; play it again where it is lost on the way."""
        for _ in range(self._options.infra_attempts):
            group = await self.run(ticket, plan, on_retry)
            found = await self.whole(group)
            if found is not None:
                return found
            ticket = replace(group.ticket, attempt=group.ticket.attempt + 1)
        lost = Failure(kind=FailureKind.INFRA, where="rollout", detail="lost with the node that held it")
        return failed_group(ticket, plan, lost)

    async def whole(self, group: Played) -> Group | None:
        """The group itself, from wherever it lies. None where it is gone with its node, or out of reach."""
        if isinstance(group.source, Group):
            return group.source
        try:
            what = f"group {group.ticket.sequence} coming to the driver"
            found: Group = await call(group.source, what, self._options.call_timeout_s)
            return found
        except (RayError, RunFailed) as error:
            log.warning("group %d is lost (%s)", group.ticket.sequence, reason(error))
            return None

    async def _least_loaded(self) -> Member:
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.failure is not None or any(m.state is State.READY for m in self._members)
            )
            if self.failure is not None:
                raise self.failure
            return min((m for m in self._members if m.state is State.READY), key=lambda m: m.in_flight)

    # -- weights ----------------------------------------------------------------------------------------------------

    async def sending(self, channel: WeightChannel, nodes: Sequence[str]) -> WeightChannel:
        """The run's channel, as ranks on these nodes are to send a version now."""
        if self._carriers is None:
            return channel
        await self._carriers.ensure(nodes)
        return self._carriers.sending()

    async def publish(self, publication: Publication) -> list[Arrival]:
        """Deliver a version to every worker that is up; those that come up later get it before they serve.

        A worker that is late serves nothing new until it holds the newest version. Raises RunFailed when an engine,
        loaded twice, still computes something else than the learner, and when the version reaches no worker at all.
        """
        self._current = publication
        up = [member for member in self._members if member.state in (State.STALE, State.READY)]
        refits = {self._spawn(self._refit(member)): member for member in up}
        _, late = await asyncio.wait(refits, timeout=self._options.publish_deadline_s) if refits else ((), set())
        for member in (refits[task] for task in late):
            close(member, publication.version, "it did not come in time (loop.publish_deadline_s)")
        without = [member for member in self._members if member.without[0] == publication.version]
        if len(without) == len(self._members) and not late:
            raise RunFailed(f"version {publication.version} reaches no rollout worker: {without[0].without[1]}")
        await self._least_loaded()  # had every worker died under it, this waits for a restarted one
        if self._carriers is not None:
            await self._carriers.keep(publication.version)
        arrived = [member.arrival for member in self._members if member.arrival is not None]
        return [arrival for arrival in arrived if arrival.delivery.version == publication.version]

    @property
    def carried(self) -> tuple[int, float]:
        """Of the newest version: bytes that crossed the network, and the seconds until the last of them."""
        return self._carriers.moved() if self._carriers is not None else (0, 0.0)

    async def _refit(self, member: Member) -> None:
        """Load the current weights into one worker and open it, unless it dies or computes something else.

        One at a time for each worker, and always the newest version: a delivery that found it coming back to life may
        be waiting here too.
        """
        async with member.refitting:
            handle = member.handle
            attempts, tried = 0, -2
            while member.handle is handle and member.state in (State.STALE, State.READY):
                publication = self._current
                assert publication is not None
                if publication.version != tried:
                    attempts, tried = 0, publication.version
                held = member.arrival.delivery.version if member.arrival and member.state is State.READY else None
                if held == publication.version:
                    return
                published = publication.published
                try:
                    if self._carriers is not None:  # it goes on generating meanwhile
                        published = await self._carriers.bring(published, member.node)
                except Superseded:
                    continue
                except RunFailed as error:
                    if self._current is publication:
                        close(member, publication.version, str(error))
                        return
                    continue
                try:
                    what = f"{member.spec.name} loading version {publication.version}"
                    loading = handle.load_weights.remote(published, publication.probe)
                    delivery: Delivery = await call(loading, what, self._options.call_timeout_s)
                except (RayError, RunFailed) as error:
                    if self._current is publication:
                        self._mark_dead(member, handle, reason(error))
                        return
                    continue  # it was forgotten when a newer version came: that one is loaded instead
                arrival = measure(delivery, publication)
                limit = allowed_gap(self._options.mismatch_limit, publication.moved)
                if arrival.gap_mean > limit:
                    attempts += 1
                    gap, version = arrival.gap_mean, publication.version
                    log.warning("%s differs from the learner by %.3g on version %d", member.spec.name, gap, version)
                    if attempts == 2:
                        await self._fail(differs(member.spec.name, version, gap, limit))
                        return
                elif self._current is publication and member.handle is handle:
                    member.state, member.arrival = State.READY, arrival
                    await self._notify()
                    return

    async def _fail(self, why: str) -> None:
        """The run cannot go on: everyone who waits for a worker hears it."""
        self.failure = self.failure or RunFailed(why)
        await self._notify()

    async def adopt(self) -> None:
        """Serve the folder that the engines were started from (evaluation without a learner)."""
        self._adopted = True
        await asyncio.gather(*(self._adopt(member) for member in self._members))

    async def _adopt(self, member: Member) -> None:
        await started(member, member.handle.adopt.remote(), "adopting its folder", 30.0)
        member.state = State.READY
        await self._notify()

    # -- supervision ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Ping every worker; one that does not answer in time is dead, whatever Ray thinks of it."""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            await self.status()

    async def _ping(self, member: Member) -> None:
        handle = member.handle
        try:
            what = f"{member.spec.name} answering a ping"
            status: WorkerStatus = await call(handle.ping.remote(), what, self._options.call_timeout_s)
            known = len(member.last_status.worlds_lost) if member.last_status is not None else 0
            for why in status.worlds_lost[known:]:
                log.warning("%s: %s; the other episodes are played again", member.spec.name, why)
            member.last_status = status
        except (RayError, RunFailed) as error:
            self._mark_dead(member, handle, reason(error))

    def _mark_dead(self, member: Member, handle: Any, why: str) -> None:
        """The first to notice starts the restart; later reports about the same incarnation change nothing."""
        if self._closing or member.handle is not handle or member.state in GONE:
            return
        where = ""
        if member.last_status is not None:
            where = f"; its log is {member.last_status.log}" if member.last_status.log else ""
            member.lost_tokens += max(0, member.last_status.generated_tokens - member.delivered)
            member.last_status = None
        log.warning("%s is dead (%s): restarting it%s", member.spec.name, why, where)
        member.state, member.died_of = State.DEAD, why
        ray.kill(handle)
        self._spawn(self._revive(member, why))

    async def _revive(self, member: Member, why: str) -> None:
        while not self._closing and await self._find_place(member):
            member.restarts += 1
            member.futile += 1
            if member.futile > MAX_RESTARTS:
                times = f"{MAX_RESTARTS} times without finishing a group"
                await self._fail(f"{member.spec.name} was restarted {times}; last: {why}")
                return
            try:
                await self._start(member)
                if self._adopted:
                    await self._adopt(member)
            except RunFailed as error:
                why = str(error)
                log.warning("%s did not come back (%s)", member.spec.name, why)
                member.state = State.DEAD
                member.futile -= isinstance(error, NoPlace)  # it never started
                ray.kill(member.handle)
                continue
            if self._current is not None:
                await self._refit(member)  # when it dies under that, it is marked dead and revived by another task
            return

    async def _find_place(self, member: Member) -> bool:
        """Wait until a worker has a node, ever more patiently. False when the run cannot go on without it."""
        since, pause = time.monotonic(), PING_EVERY_S
        while not await asyncio.to_thread(has_place, member.placement):
            if member.state is not State.LOST:
                log.warning("%s is lost: its node is gone, and no other has room for it yet", member.spec.name)
                member.state = State.LOST
            live, options = len(self._members) - self.lost, self._options
            if live < options.min_workers and time.monotonic() - since > options.placement_timeout_s:
                await self._fail(
                    f"{live} of {len(self._members)} rollout workers have a node (rollout.min_workers="
                    f"{options.min_workers}), for {options.placement_timeout_s:g} s (cluster.placement_timeout_s)"
                )
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
        return True

    # -- bookkeeping ------------------------------------------------------------------------------------------------

    async def status(self) -> list[WorkerStatus]:
        """A fresh status of every ready worker."""
        await asyncio.gather(*(self._ping(m) for m in self._members if m.state is State.READY))
        return [m.last_status for m in self._members if m.last_status is not None]

    @property
    def lost_tokens(self) -> int:
        """Sampled by workers that died before the group was done: it was played again."""
        return sum(member.lost_tokens for member in self._members)

    @property
    def lost(self) -> int:
        """Workers whose node is gone, for now."""
        return sum(member.state is State.LOST for member in self._members)

    @property
    def restarts(self) -> dict[str, int]:
        return {member.spec.name: member.restarts for member in self._members}

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _guarded(self, work: Any) -> None:
        """Supervision that breaks is an error of the run, not a silence."""
        try:
            await work
        except Exception as error:
            log.exception("supervision of the rollout workers broke")
            await self._fail(f"supervision of the rollout workers broke: {type(error).__name__}: {error}")
