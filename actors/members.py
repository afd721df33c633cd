"""The rollout workers as their pool sees them: what is known of each, and how its actor is started."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import ray
from ray.exceptions import RayError

from actors.placement import actor_name
from actors.weights.check import LoadCheck
from actors.worker import WorkerSpec, WorkerStatus
from rlsys.errors import RunFailed
from rlsys.system.calls import call, is_node_lost, reason
from rlsys.system.supervisor import Supervised
from rlsys.system.weight_folder import WeightsRejected

log = logging.getLogger("rlsys.pool")


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
    company: object = None  # of suspects that play together, and with nobody else; None: nothing is held against it
    member: WorkerRecord | None = None  # with the incarnation that it was given
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
    playing: set[Assignment] = field(default_factory=set)
    died_of: str = ""  # its last incarnation that was found dead
    blameless: bool = False  # what was played on that had nothing to do with it
    without: tuple[int | None, str] = (None, "")  # the version that it last went without, and why
    arrival: LoadCheck | None = None  # of the version that it holds
    refitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_status: WorkerStatus | None = None
    delivered: int = 0  # tokens of the groups that this incarnation finished
    lost_tokens: int = 0  # tokens of groups that earlier ones did not finish, as of their last sign of life

    @property
    def handle(self) -> Any:
        """Of its present incarnation; None while it is dead."""
        return self.life.handle

    @property
    def in_flight(self) -> int:
        """Episodes."""
        return sum(play.episodes for play in self.playing)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    cpus: float
    gpus: float
    env_vars: dict[str, str]
    start_timeout_s: float
    call_timeout_s: float
    seats: int  # episodes of one worker that sample at the same time
    in_flight: int  # episodes that one worker is given at the same time
    infra_attempts: int
    min_workers: int  # that have a node: with fewer the run stops after `placement_timeout_s`
    placement_timeout_s: float
    run: str = ""  # names the actors
    mismatch_limit: float  # mean gap past which an engine is refitted once, then the run stops; see `allowed_gap`
    publish_deadline_s: float = 60.0  # of a version: a worker without it by then serves nothing until it has it


def close(member: WorkerRecord, version: int, why: str) -> None:
    """It holds older weights than the newest, and starts no group until it is given those."""
    log.warning("%s serves nothing until it holds the newest weights: version %d: %s", member.spec.name, version, why)
    member.without = version, why
    if member.state is State.READY:
        member.state = State.STALE


def bury(member: WorkerRecord, error: Exception) -> None:
    """This incarnation is dead, and what it sampled for groups that it did not finish is lost."""
    refused = isinstance(getattr(error, "cause", None), WeightsRejected)
    member.state, member.died_of, member.blameless = State.DEAD, reason(error), refused or is_node_lost(error)
    if member.last_status is not None:
        member.lost_tokens += max(0, member.last_status.generated_tokens - member.delivered)
        member.last_status = None
    if not member.blameless:
        suspect(list(member.playing))


def suspect(plays: Sequence[Assignment]) -> None:
    """One of these may have ended their worker. Of n each plays next in a company of about the square root of n, and by
    itself when that company ends a worker again: so a death that was nobody's doing costs a few rounds, and one task
    that kills its worker is found by the third."""
    anew = any(play.company is not None for play in plays)
    companies = [object() for _ in range(len(plays) if anew else math.isqrt(max(0, len(plays) - 1)) + 1)]
    for number, play in enumerate(plays):
        play.by_itself = len(plays) == 1
        play.suspected = companies[number % len(companies)]


def create(worker: type, options: PoolOptions, member: WorkerRecord) -> Any:
    """Its next actor, with its name, its share of the machine and its place."""
    placed = ray.remote(worker).options(
        name=actor_name(options.run, member.spec.name, member.life.restarts),
        num_cpus=options.cpus,
        num_gpus=options.gpus,
        max_restarts=0,
        max_concurrency=4096,
        scheduling_strategy=member.placement,
        runtime_env={"env_vars": options.env_vars},
    )
    return placed.remote(member.spec)


async def await_start(member: WorkerRecord, ref: Any, what: str, timeout_s: float) -> Any:
    """The answer to a call without which a worker does not serve."""
    try:
        return await call(ref, f"{member.spec.name} {what}", timeout_s)
    except RayError as error:
        raise RunFailed(f"{member.spec.name} could not start: {reason(error)}") from error
