"""The rollout pool: owns the rollout workers, routes groups to them, and brings the dead ones back.

Each worker is in one state:

    starting --start()--> stale --load_weights()--> ready --died, hung or refused weights--> dead --> starting ...

A worker is found dead by the call that it broke or by a ping with a deadline; it is killed, started again and refitted
with the current weights before it serves. One whose node is gone is `lost` until another node has room for it; the run
continues as long as `min_workers` are not. Groups in flight on it are started again on another worker with a new
attempt number, in small companies and at last alone, since one of them may be what ended it. One that was alone and had
`infra_attempts` starts is recorded as a typed failure; the others have lost nothing but time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from actors.placement import NoPlace, has_place, while_placed
from actors.specs import EngineFailed
from actors.weights.distributor import WeightDistributor, node_of
from actors.weights.publisher import WeightPublisher
from actors.worker import RolloutWorker, WorkerSpec, WorkerStatus
from actors.worker_registry import PoolOptions, State, WorkerRecord, WorkerRegistry, await_start, create, record_death
from rlsys.alternating_cards import AlternatingCards, Side
from rlsys.deadlines import hung_s
from rlsys.errors import RunFailed
from rlsys.group_rollout import failed_group
from rlsys.rollout import RolloutPlan
from rlsys.summaries import GroupRef, TrajectorySummary, refer_to
from rlsys.system import supervisor
from rlsys.system.calls import FIXED, WORKER_CALL, WORKER_START, ask_to_stop, call, reason
from rlsys.system.incidents import Incident, warn
from rlsys.system.supervisor import GaveUp, Supervised, keep_pinging
from rlsys.types import Failure, FailureKind, Group, Ticket
from rlsys.untrusted import visible

log = logging.getLogger("rlsys.pool")

PHASE_S = 5.0  # for an answer to how far a start is
MAX_PAUSE_S = 30.0  # between two looks for a node
LEAST_LOOK_S = 1.0  # between two looks for what goes on in a group
QUIET_S = 20.0  # without an engine step, until it is said: long before the engine counts as hung


class RolloutPool:
    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        options: PoolOptions,
        worker: type = RolloutWorker,
        distributor: WeightDistributor | None = None,
        cards: AlternatingCards | None = None,
    ) -> None:
        """distributor: of new weights to the engines; without, there are none, and `adopt` opens the workers. cards:
        those that the engines share with a learner."""
        self.options, self._worker, self._cards = options, worker, cards or AlternatingCards()
        self.workers = [self._supervise(spec) for spec in specs]
        self._registry = WorkerRegistry(self.workers, options.in_flight)
        self.publisher = WeightPublisher(self._registry, options, distributor, self.mark_dead, self._cards)
        self._distributor = distributor
        self._addresses: Mapping[str, str] = {}
        self._away: dict[str, str] = {}  # tools that do not answer, and why
        self._away_since: dict[str, float] = {}
        self._adopted = False
        self.shows: Callable[[Mapping[str, WorkerStatus]], None] | None = None  # hears of each; may not wait

    def _supervise(self, spec: WorkerSpec) -> WorkerRecord:
        life = Supervised[Any](
            spec.name,
            lambda: create(self._worker, self.options, worker),
            lambda handle: self._start(worker, handle),
            ray.kill,
            find_place=lambda: self._find_place(worker),
            goal="finishing a group",
            announces=False,  # once it has its weights
        )
        worker: WorkerRecord = WorkerRecord(spec=spec, life=life)
        return worker

    # -- start and stop ---------------------------------------------------------------------------------------------

    async def start(self, placement: Sequence[Any] | None = None) -> None:
        """Start every worker, each where `placement` says; one that cannot start at all is an error of the run."""
        for worker, where in zip(self.workers, placement or ["DEFAULT"] * len(self.workers), strict=True):
            worker.placement = where
        await asyncio.gather(*(worker.life.ensure() for worker in self.workers))
        self._registry.run_in_background(keep_pinging(self.status))

    async def _start(self, worker: WorkerRecord, handle: Any) -> None:
        async with self._cards.hold(Side.ENGINES):
            await self._start_engine(worker, handle)

    async def _start_engine(self, worker: WorkerRecord, handle: Any) -> None:
        name = worker.spec.name
        timeout_s = self.options.start_timeout_s
        worker.state, worker.delivered = State.STARTING, 0
        starting = await_start(worker, handle.start.remote(), "starting its engine", timeout_s, WORKER_START)
        try:
            worker.last_status = await while_placed(starting, worker.placement, f"{name} starting its engine")
            if self._distributor is not None:
                where = handle.__ray_call__.remote(node_of)
                call_s = self.options.call_timeout_s
                worker.node = await await_start(worker, where, "saying where it is", call_s, WORKER_CALL)
                await self._distributor.ensure([worker.node])
            worker.state = State.STALE
            await self._connect(worker, handle)
            if self._adopted and worker.handle is handle:
                await self._adopt(worker, handle)
        except RunFailed as error:
            if worker.handle is handle:  # else it was found dead meanwhile, and another one may be starting
                worker.state = State.DEAD
                worker.life.futile -= isinstance(error, NoPlace)  # it never started
            raise RunFailed(str(error)) from error  # where its node has no weight store, another one gave up

    async def describe_start(self) -> str:
        """What the workers that are starting are at: "compiling", or "6 loading the weights, 2 compiling"."""
        starting = [worker for worker in self.workers if worker.state is State.STARTING and worker.handle is not None]
        phases = await asyncio.gather(*(self._start_phase_of(worker) for worker in starting))
        counted = Counter(filter(None, phases))
        if len(counted) == 1 and len(starting) == 1:
            return next(iter(counted))
        return ", ".join(f"{count} {phase}" for phase, count in counted.items())

    async def _start_phase_of(self, worker: WorkerRecord) -> str:
        await self._registry.turnstile.enter()
        try:
            ref = worker.handle.start_phase.remote()
            return str(await call(ref, f"{worker.spec.name} telling its phase", PHASE_S, FIXED))
        except (AttributeError, RayError, RunFailed):  # it is not there yet, or dies: its start says so
            return ""

    async def connect(self, addresses: Mapping[str, str]) -> None:
        """Tell every worker where the run's services listen, by their names; those that come up later hear it first."""
        self._addresses = addresses
        await asyncio.gather(*(self._connect(worker, worker.handle) for worker in self._registry.up))

    async def _connect(self, worker: WorkerRecord, handle: Any) -> None:
        await self._ask(worker, handle, handle.connect.remote(self._addresses), "hearing of the services")

    async def sleep(self) -> None:
        """Every engine leaves its device (`RolloutWorker.sleep`); one that cannot is dead."""
        await asyncio.gather(
            *(self._ask(m, m.handle, m.handle.sleep.remote(), "falling asleep") for m in self._registry.up)
        )

    async def wake(self) -> None:
        """Every engine is back on its device."""
        await asyncio.gather(*(self._ask(m, m.handle, m.handle.wake.remote(), "waking up") for m in self._registry.up))

    async def _ask(self, worker: WorkerRecord, handle: Any, ref: Any, label: str) -> None:
        """Have a worker do something without which it is dead."""
        try:
            await call(ref, f"{worker.spec.name} {label}", self.options.call_timeout_s, WORKER_CALL)
        except (RayError, RunFailed) as error:
            self.mark_dead(worker, handle, error)

    async def stop(self) -> None:
        for worker in self.workers:
            worker.life.close()  # first: what fails while the others end is no death to mend
        await self._registry.stop()
        stops = [worker.life.stop(ask_to_stop) for worker in self.workers]
        stops += [self._distributor.stop()] if self._distributor is not None else []
        await asyncio.gather(*stops, return_exceptions=True)

    # -- groups -----------------------------------------------------------------------------------------------------

    async def run(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> GroupRef:
        """Play one group on the least loaded ready worker; on another one, among suspects, when that dies.

        Its tokens and text stay on the worker's node, and outlive the worker. Raises RunFailed for a bug in what it
        plays, never for a death.
        """
        company = None
        for starts in count(1):
            play = await self._registry.admit(plan.group_size, company=company, priority=plan.priority)
            worker, handle = play.worker, play.handle
            assert worker is not None
            try:
                # Both are results of the call, so that the driver owns them: what a worker puts itself dies with it.
                ref, source = handle.run_group.options(num_returns=2).remote(ticket, plan)
                summaries: tuple[TrajectorySummary, ...] = await self._await_group(worker, handle, ref, ticket, plan)
                worker.life.note_progress()
                worker.delivered += sum(summary.num_sampled + summary.discarded_tokens for summary in summaries)
                return GroupRef(ticket=ticket, summaries=summaries, source=source)
            except (RayError, RunFailed) as error:
                if isinstance(error, RayTaskError) and not isinstance(error.cause, (EngineFailed, MemoryError)):
                    raise RunFailed(f"{worker.spec.name} playing group {ticket.sequence}: {reason(error)}") from error
                self.mark_dead(worker, handle, error)
                company = company if worker.blameless else play.suspected or object()
                if starts >= self.options.infra_attempts and (play.by_itself or worker.blameless):
                    # Where a ping had it ended, Ray's error says no more than that it was killed.
                    last = f"{worker.spec.name}: {worker.died_of or reason(error)}"
                    break
            finally:
                await self._registry.leave(play)
            ticket = replace(ticket, attempt=ticket.attempt + 1)
            on_retry(ticket)
        label = f"task {ticket.task.task_id} of {getattr(plan.env, 'name', plan.env)}"
        detail = f"{label} was alone when its worker ended; {last}" if play.by_itself else last
        if play.by_itself:
            log.warning("%s; it was started %d times and fails", detail, starts)
        return refer_to(failed_group(ticket, plan, Failure(kind=FailureKind.INFRA, where="rollout", detail=detail)))

    async def _await_group(self, worker: WorkerRecord, handle: Any, ref: Any, ticket: Ticket, plan: RolloutPlan) -> Any:
        """The group's summaries. Raises RunFailed once nothing goes on in it any more.

        Its episodes' own deadlines end what is late: this finds what hangs without one. No time limits the whole, which
        honest work for others may make long.
        """
        patience = hung_s(plan.timeout_s, self.options.start_timeout_s)
        call_s = self.options.call_timeout_s
        answer, wait_s, over = asyncio.ensure_future(ref), patience.value, False
        label = f"{worker.spec.name} playing group {ticket.sequence}"
        try:
            while not (await asyncio.wait({answer}, timeout=wait_s))[0]:
                idle_ref = handle.idle_s.remote(plan.purpose, ticket.sequence, ticket.attempt)
                idle = await call(idle_ref, f"{label}, and telling how far it is", call_s, WORKER_CALL)
                if answer.done():
                    break
                if idle is None and over:
                    raise RunFailed(f"{label}: over there, but its answer did not come in {call_s:g} s ({WORKER_CALL})")
                if idle is not None and idle >= patience.value:
                    nothing = f"no episode got a token, a reply or a reward for {patience.value:g} s"
                    raise RunFailed(f"{label}: {nothing} ({patience.said})")
                over = idle is None
                wait_s = call_s if idle is None else max(patience.value - idle, LEAST_LOOK_S)
            return answer.result()
        finally:
            answer.cancel()

    async def group(self, ticket: Ticket, plan: RolloutPlan, on_retry: Callable[[Ticket], None]) -> Group:
        """Play one group and bring it here; play it again where it is lost on the way."""
        for _ in range(self.options.infra_attempts):
            group = await self.run(ticket, plan, on_retry)
            full_group = await self.whole(group)
            if full_group is not None:
                return full_group
            ticket = replace(group.ticket, attempt=group.ticket.attempt + 1)
        lost = Failure(kind=FailureKind.INFRA, where="rollout", detail="lost with the node that held it")
        return failed_group(ticket, plan, lost)

    async def whole(self, group: GroupRef) -> Group | None:
        """The group itself, from wherever it lies. None where it is gone with its node, or out of reach."""
        if isinstance(group.source, Group):
            return group.source
        try:
            label = f"group {group.ticket.sequence} coming to the driver"
            full_group: Group = await call(group.source, label, self.options.call_timeout_s, WORKER_CALL)
            return full_group
        except (RayError, RunFailed) as error:
            text = f"group {group.ticket.sequence} is lost ({reason(error)})"
            warn(log, Incident(kind="lost", who=f"group {group.ticket.sequence}", text=text))
            return None

    async def adopt(self) -> None:
        """Serve the folder that the engines were started from (evaluation without a learner)."""
        self._adopted = True
        up = [worker for worker in self.workers if worker.handle is not None]  # another one adopts when it starts
        await asyncio.gather(*(self._adopt(worker, worker.handle) for worker in up))

    async def _adopt(self, worker: WorkerRecord, handle: Any) -> None:
        call_s = self.options.call_timeout_s
        await await_start(worker, handle.adopt.remote(), "adopting its folder", call_s, WORKER_CALL)
        if worker.handle is handle:
            await self._registry.open(worker)

    # -- supervision ------------------------------------------------------------------------------------------------

    async def _ping(self, worker: WorkerRecord, handle: Any) -> None:
        await self._registry.turnstile.enter()
        try:
            label = f"{worker.spec.name} answering a ping"
            status: WorkerStatus = await call(handle.ping.remote(), label, self.options.call_timeout_s, WORKER_CALL)
            num_reported = len(worker.last_status.worlds_lost) if worker.last_status is not None else 0
            for why in status.worlds_lost[num_reported:]:
                text = f"{worker.spec.name}: {why}; the other episodes are played again"
                warn(log, Incident(kind="lost", who=f"{worker.spec.name} environments", text=text))
            self._warn_of_stall(worker, status)
            worker.last_status = status
            if worker.handle is handle:
                worker.life.note_alive()
        except (RayError, RunFailed) as error:
            self.mark_dead(worker, handle, error)

    def mark_dead(self, worker: WorkerRecord, handle: Any, error: Exception) -> None:
        """The first to notice starts the restart; later reports about the same incarnation change nothing."""
        written = worker.last_status.log if worker.last_status is not None else ""
        if worker.life.declare_dead(handle, reason(error), f"; its log is {written}" if written else ""):
            record_death(worker, error)
            self._registry.run_in_background(self._revive(worker))

    async def _revive(self, worker: WorkerRecord) -> None:
        try:
            await worker.life.revive()
        except GaveUp as error:
            await self._registry.fail(str(error))
        else:
            await self.publisher.renew(worker)  # when it dies under that, another task revives it
            if worker.state is State.READY:
                worker.life.announce(worker.interrupted)
                worker.interrupted = 0

    async def _find_place(self, worker: WorkerRecord) -> None:
        """Wait until a worker has a node, ever longer. Raises GaveUp when the run cannot continue without it."""
        since, pause = time.monotonic(), supervisor.PING_EVERY_S
        while not await asyncio.to_thread(has_place, worker.placement):
            if worker.state is not State.LOST:
                text = f"{worker.spec.name} is lost: its node is gone, and no other has room for it yet"
                warn(log, Incident(kind="lost", who=worker.spec.name, text=text))
                worker.state = State.LOST
            live, options = len(self.workers) - self.lost, self.options
            if live < options.min_workers and time.monotonic() - since > options.placement_timeout_s:
                raise GaveUp(
                    f"{live} of {len(self.workers)} rollout workers have a node (rollout.min_workers="
                    f"{options.min_workers}), for {options.placement_timeout_s:g} s (cluster.placement_timeout_s)"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    # -- bookkeeping ------------------------------------------------------------------------------------------------

    async def status(self) -> list[WorkerStatus]:
        """The last status of every worker that has one; those that are ready are asked first."""
        await asyncio.gather(*(self._ping(m, m.handle) for m in self.workers if m.state is State.READY))
        self._log_tool_outages()
        statuses = {m.spec.name: m.last_status for m in self.workers if m.last_status is not None}
        if self.shows is not None:
            self.shows(statuses)
        return list(statuses.values())

    def _warn_of_stall(self, worker: WorkerRecord, status: WorkerStatus) -> None:
        """Warn, once, of an engine that takes no step."""
        before = worker.last_status.idle_s if worker.last_status is not None else 0.0
        if before < QUIET_S <= status.idle_s:
            name, hung = worker.spec.name, f"after {worker.spec.stall_s:g} s it is started again ({WORKER_CALL})"
            text = f"{name}: no engine step for {status.idle_s:.0f} s with {status.requests} requests; {hung}"
            warn(log, Incident(kind="stall", who=name, text=text))

    def _log_tool_outages(self) -> None:
        """Of tools, as they begin and end: what needs one waits, and nothing else would say for what."""
        counted = [worker.last_status.tools for worker in self.workers if worker.last_status is not None]
        away = {tool: stats.outage for tools in counted for tool, stats in tools.items() if stats.outage}
        for tool in sorted(away.keys() - self._away.keys()):
            self._away_since[tool] = time.monotonic()
            text = f"the {tool} does not answer ({visible(away[tool])}): what needs it waits"
            warn(log, Incident(kind="stall", who=tool, text=text))
        for tool in sorted(self._away.keys() - away.keys()):
            waited = time.monotonic() - self._away_since.pop(tool)
            warn(log, Incident(kind="stall", who=tool, text=f"the {tool} answers again", recovered_s=waited))
        self._away = away

    @property
    def lost_tokens(self) -> int:
        """Sampled by workers that died before the group was done: it was played again."""
        return sum(worker.lost_tokens for worker in self.workers)

    @property
    def lost(self) -> int:
        """Workers whose node is gone, for now."""
        return sum(worker.state is State.LOST for worker in self.workers)

    @property
    def restarts(self) -> dict[str, int]:
        return {worker.spec.name: worker.life.restarts for worker in self.workers}
