"""The rollout workers as their pool sees them: what is known of each, how its actor is started, who waits for which.

A worker is given `in_flight` episodes at most, or one group; the others wait here, in order of arrival. So a worker
that comes back gets its share and no more, however many wait.

A group that was in flight when its worker died may be what ended it. It is a suspect: it waits until no other group
does, and plays on a worker with those of its company alone (`suspect`), so that the next death is not theirs who had
nothing to do with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import ray
from ray.exceptions import RayError

from actors.placement import actor_name
from actors.weights.check import LoadCheck
from actors.worker import ASIDE, WorkerSpec, WorkerStatus
from rlsys.errors import RunFailed
from rlsys.system.calls import Turnstile, call, is_node_lost, reason
from rlsys.system.incidents import Incident, warn
from rlsys.system.parts import of_part
from rlsys.system.supervisor import Supervised
from rlsys.system.weight_folder import WeightsRejected

log = logging.getLogger("rlsys.pool")

SUSPECTS_WAIT_S = 30.0  # while others come and go; then a worker is kept free for them


class State(StrEnum):
    STARTING = "starting"
    STALE = "stale"
    READY = "ready"
    DEAD = "dead"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Assignment:
    """One group's place on a worker."""

    episodes: int
    company: object = None  # of suspects that play together, and with no other group; None: it is no suspect
    worker: WorkerRecord | None = None  # with the incarnation that it was given
    handle: Any = None
    # Known of one whose worker died:
    by_itself: bool = False  # nothing else was played there then
    suspected: object = None  # the company that it plays in next


@dataclass(slots=True)
class WorkerRecord:
    """One worker, over all its incarnations."""

    spec: WorkerSpec
    life: Supervised[Any]
    placement: Any = "DEFAULT"
    node: str = ""  # of Ray's, on which it runs
    state: State = State.DEAD
    playing: set[Assignment] = field(default_factory=set)  # all of one company
    in_flight: int = 0  # their episodes
    died_of: str = ""  # its last incarnation that was found dead
    blameless: bool = False  # what was played on that had nothing to do with it
    arrival: LoadCheck | None = None  # of the version that it holds
    refitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_status: WorkerStatus | None = None
    delivered: int = 0  # tokens of the groups that this incarnation finished
    interrupted: int = 0  # groups of incarnations that died since it last served: they are played again
    lost_tokens: int = 0  # tokens of groups that earlier ones did not finish, as of their last sign of life

    @property
    def handle(self) -> Any:
        """Of its present incarnation; None while it is dead."""
        return self.life.handle

    def add(self, play: Assignment) -> None:
        self.playing.add(play)
        self.in_flight += play.episodes

    def remove(self, play: Assignment) -> None:
        if play in self.playing:
            self.playing.remove(play)
            self.in_flight -= play.episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    cpus: float
    gpus: float
    env_vars: dict[str, str]
    start_timeout_s: float
    call_timeout_s: float
    in_flight: int  # episodes that one worker is given at the same time
    infra_attempts: int
    min_workers: int  # that have a node: with fewer the run stops after `placement_timeout_s`
    placement_timeout_s: float
    run: str = ""  # names the actors
    publish_deadline_s: float = 60.0  # of a version: a worker without it by then serves nothing until it has it


def close(worker: WorkerRecord, version: int, why: str) -> None:
    """It holds older weights than the newest, and starts no group until it is given those."""
    name = worker.spec.name
    text = f"{name} serves nothing until it holds the newest weights: version {version}: {why}"
    warn(log, Incident(kind="delivery_late", who=name, text=text))
    if worker.state is State.READY:
        worker.state = State.STALE


def record_death(worker: WorkerRecord, error: Exception) -> None:
    """This incarnation is dead, and what it sampled for groups that it did not finish is lost."""
    refused = isinstance(getattr(error, "cause", None), WeightsRejected)
    worker.state, worker.died_of, worker.blameless = State.DEAD, reason(error), refused or is_node_lost(error)
    if worker.last_status is not None:
        worker.lost_tokens += max(0, worker.last_status.generated_tokens - worker.delivered)
        worker.last_status = None
    worker.interrupted += len(worker.playing)
    if not worker.blameless:
        suspect(list(worker.playing))


def suspect(plays: Sequence[Assignment]) -> None:
    """One of these may have ended their worker. Of n each plays next in a company of about the square root of n, and by
    itself when that company ends a worker again: so a death that no group caused costs a few rounds, and one task
    that kills its worker is found by the third."""
    repeated = any(play.company is not None for play in plays)
    companies = [object() for _ in range(len(plays) if repeated else math.isqrt(max(0, len(plays) - 1)) + 1)]
    for number, play in enumerate(plays):
        play.by_itself = len(plays) == 1
        play.suspected = companies[number % len(companies)]


def create(actor_class: type, options: PoolOptions, worker: WorkerRecord) -> Any:
    """Its next actor, with its name, its share of the machine and its place."""
    placed = ray.remote(concurrency_groups={ASIDE: 1})(actor_class).options(
        name=actor_name(options.run, worker.spec.name, worker.life.restarts),
        num_cpus=options.cpus,
        num_gpus=options.gpus,
        max_restarts=0,
        max_concurrency=4096,  # calls at once: above all groups in flight, so that pings do not wait for them
        scheduling_strategy=worker.placement,
        runtime_env={"env_vars": options.env_vars | of_part(worker.spec.name)},
    )
    return placed.remote(worker.spec)


async def await_start(worker: WorkerRecord, ref: Any, label: str, timeout_s: float, key: str) -> Any:
    """The answer to a call without which a worker does not serve."""
    try:
        return await call(ref, f"{worker.spec.name} {label}", timeout_s, key)
    except RayError as error:
        raise RunFailed(f"{worker.spec.name} could not start: {reason(error)}") from error


class WorkerRegistry:
    """Belongs to the driver's event loop, and so do the tasks that run in the background of its calls."""

    def __init__(self, workers: Sequence[WorkerRecord], in_flight: int) -> None:
        self.workers = workers
        self.failure: RunFailed | None = None
        self.turnstile = Turnstile()  # to every call that is sent to all workers at once
        self._in_flight = in_flight
        self._priority: deque[tuple[Assignment, asyncio.Future[Assignment]]] = deque()  # before those that wait
        self._waiting: deque[tuple[Assignment, asyncio.Future[Assignment]]] = deque()
        self._suspects: deque[tuple[Assignment, asyncio.Future[Assignment]]] = deque()
        self._since = 0.0  # when a suspect was last served, or began to wait for all
        self._kept: WorkerRecord | None = None  # for suspects that have waited long: no other group is played there
        self._changed = asyncio.Condition()
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def up(self) -> list[WorkerRecord]:
        """Those that answer, with whatever weights."""
        serving = (State.STALE, State.READY)
        return [worker for worker in self.workers if worker.state in serving and worker.handle is not None]

    async def admit(self, episodes: int, *, company: object = None, priority: bool = False) -> Assignment:
        """A place for a group on the least loaded worker that has room. The caller gives it back with `leave`.
        priority: before all that wait without; a suspect waits for all others in any case.

        Raises RunFailed when the run cannot continue.
        """
        future: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()
        queue = self._suspects if company is not None else self._priority if priority else self._waiting
        if company is not None and not self._suspects:
            self._since = asyncio.get_running_loop().time()
        queue.append((Assignment(episodes=episodes, company=company), future))
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                await self.leave(future.result())  # it came at the moment at which the caller was cancelled
            raise

    async def leave(self, play: Assignment) -> None:
        assert play.worker is not None
        play.worker.remove(play)
        await self.notify()

    def _serve(self) -> None:
        """Give out the free places: to suspects only if no other group waits."""
        self._keep_one()
        for queue in (self._priority, self._waiting):
            while queue and self._try_serve(*queue[0]):
                queue.popleft()
            if queue:
                break
        if not (self._priority or self._waiting) or self._kept is not None:
            # Not only the first: those of a company that is playing may join it.
            waited = len(self._suspects)
            self._suspects = deque(entry for entry in self._suspects if not self._try_serve(*entry))
            if len(self._suspects) < waited:
                self._since = asyncio.get_running_loop().time()

    def _keep_one(self) -> None:
        """Groups of an evaluation hold no place in the buffer, so training could continue for ever without them."""
        if not self._suspects:
            self._kept = None
        elif self._kept is None or self._kept.state is not State.READY:
            waited_s = asyncio.get_running_loop().time() - self._since
            open_to = [worker for worker in self.workers if worker.state is State.READY]
            late = waited_s > SUSPECTS_WAIT_S and open_to
            self._kept = min(open_to, key=lambda worker: worker.in_flight) if late else None

    def _try_serve(self, play: Assignment, future: asyncio.Future[Assignment]) -> bool:
        """Whether it waits no more."""
        if future.done():  # its caller has gone
            return True
        if self.failure is not None:
            future.set_exception(self.failure)
            return True
        best: WorkerRecord | None = None
        for worker in self.workers:  # of a thousand most are looked at no further than their load
            if (best is None or worker.in_flight < best.in_flight) and self._has_room(worker, play):
                best = worker
        if best is None:
            return False
        play.worker, play.handle = best, best.handle
        best.add(play)
        future.set_result(play)
        return True

    def _has_room(self, worker: WorkerRecord, play: Assignment) -> bool:
        if worker.playing and worker.in_flight + play.episodes > self._in_flight:
            return False
        if worker.state is not State.READY or (worker is self._kept and play.company is None):
            return False
        return not worker.playing or next(iter(worker.playing)).company is play.company

    async def ready(self) -> None:
        """Waits for a worker that serves. Raises RunFailed when the run cannot continue."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.failure is not None or any(m.state is State.READY for m in self.workers)
            )
            if self.failure is not None:
                raise self.failure

    async def open(self, worker: WorkerRecord) -> None:
        """From now on it is given groups."""
        worker.state = State.READY
        await self.notify()

    async def fail(self, why: str) -> None:
        """The run cannot continue: every caller that waits for a worker gets this error."""
        self.failure = self.failure or RunFailed(why)
        await self.notify()

    async def notify(self) -> None:
        self._serve()
        async with self._changed:
            self._changed.notify_all()

    def run_in_background(self, work: Any) -> asyncio.Task[None]:
        """Start supervision work as a separate task; an error in it fails the run."""
        task = asyncio.create_task(self._guard(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _guard(self, work: Any) -> None:
        """Supervision that breaks is an error of the run, not a silence."""
        try:
            await work
        except Exception as error:
            log.exception("supervision of the rollout workers broke")
            await self.fail(f"supervision of the rollout workers broke: {type(error).__name__}: {error}")

    async def stop(self) -> None:
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
