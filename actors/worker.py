"""The rollout worker: one vLLM engine, and the episodes that it plays, in one Ray actor.

A worker serves nothing until it holds published weights (docs/laws.md, law 8): it starts `stale`, and only
`load_weights` or `adopt` (evaluation of a folder that the engine itself was started from) opens it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import psutil
import ray
import ray.util

from actors import engine_start
from actors.addresses import only_node
from actors.engine import Engine
from actors.env_worker import EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.renderer import ChatRenderer
from actors.scoring import ScoringSpec
from actors.seats import Seats
from actors.specs import IDLE, EngineFailed, EngineSpec, EngineStats, PromptTooLong
from envs.services.stats import ToolStats
from rlsys.clock import (
    Clock,
    Progress,
    continue_clocks,
    cut_at_deadline,
    idle_s,
    pause_deadlines,
    stop_clocks,
    track_progress,
)
from rlsys.group_rollout import run_group
from rlsys.rollout import EpisodeBroken, Player, RolloutPlan, TurnRequest
from rlsys.summaries import TrajectorySummary, summarize_group
from rlsys.system import stack_signal
from rlsys.system.weight_folder import WeightManifest
from rlsys.types import Completion, Failure, FailureKind, Group, Ints, Message, Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    name: str  # "rollout:0"
    engine: EngineSpec
    run_seed: int
    scoring: ScoringSpec
    stall_s: float  # an engine that has requests and takes no step for this long is broken
    block_s: float  # how long an environment or a reward may keep the others of this worker waiting
    start_timeout_s: float  # for the process of the environments, and for a world and its reward to be made
    # Variables of the environment. Ray writes a runtime environment's into its logs, and no actor's arguments.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The end of what an episode has come to, for who looks on."""

    prompt: tuple[Message, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """Counted since the worker's start."""

    pid: int
    log: str  # where the actor and its engine write; empty when not a file
    version: int | None  # None: stale
    generated_tokens: int
    busy_s: float  # time with at least one request in the engine
    alive_s: float
    rss_mb: float  # of the actor and its engine process
    # Processor time since the engine is up: of its processes, and of the actor's own, which renders, tokenizes and
    # detokenizes. The process of the environments is in neither.
    engine_cpu_s: float
    own_cpu_s: float
    engine: EngineStats
    tools: Mapping[str, ToolStats]  # by tool
    worlds_lost: tuple[str, ...] = ()  # why each earlier process of the environments was ended
    requests: int = 0  # in the engine
    idle_s: float = 0.0  # for which it has taken no step for them
    playing: Excerpt | None = None  # of one of the episodes that go on


@dataclass(slots=True)
class Followed:
    """An episode, from the first message that it asks for to its end."""

    episode: asyncio.Task[Any]
    prompts: list[tuple[Message, ...]] = field(default_factory=list)  # of its conversations
    num_prompt: int = 0
    messages: tuple[Message, ...] = ()

    def ask(self, messages: tuple[Message, ...]) -> None:
        """A conversation that begins with no earlier one's prompt is all prompt, examples in it too."""
        self.messages = messages
        known = [len(prompt) for prompt in self.prompts if messages[: len(prompt)] == prompt]
        if not known:
            self.prompts.append(messages)
        self.num_prompt = max(known, default=len(messages))

    def excerpt(self) -> Excerpt | None:
        if self.episode.done():
            return None
        kept, room = list[Message](), MOST_SHOWN
        for message in reversed(self.messages):
            cut = "\N{HORIZONTAL ELLIPSIS}" if len(message.content) > room else ""
            kept.insert(0, Message(role=message.role, content=cut + message.content[-room:]))
            room -= len(message.content)
            if room <= 0:
                break
        num_prompt = max(0, self.num_prompt - (len(self.messages) - len(kept)))
        return Excerpt(tuple(kept[:num_prompt]), tuple(kept[num_prompt:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Proof that a version arrived."""

    version: int
    seconds: float  # that the load took
    probe_s: float = 0.0
    probe_logprobs: tuple[tuple[float, ...], ...]  # the engine's log-probabilities of the probe under these weights


ASIDE = "aside"  # calls that another loop answers
MOST_SHOWN = 50_000  # characters of a conversation in a status
ENGINE_PROCESS = "VLLM"  # what vLLM names its own begins with: VLLM::EngineCore, VLLM::Worker_TP0


class RolloutWorker:
    """Plain class; `actors.pool` makes it a Ray actor."""

    def __init__(self, spec: WorkerSpec) -> None:
        stack_signal.answer()
        os.environ.update(spec.secrets)
        self.spec = spec
        self.renderer = ChatRenderer(spec.engine.adapter or spec.engine.model_path)
        self.worlds = EnvWorkerPool(
            EnvWorkerSpec(
                worker=spec.name, scoring=spec.scoring, block_s=spec.block_s, start_timeout_s=spec.start_timeout_s
            )
        )
        self.engine: Engine | None = None
        self.version: int | None = None
        self._player = Player(name=spec.name, run_seed=spec.run_seed, renderer=self.renderer, generate=self.generate)
        self._requests = 0
        self.seats = Seats(spec.engine.max_num_seqs)
        self.waiting = 0  # requests, for a seat
        self._playing: dict[tuple[str, int, int], Progress] = {}
        self._followed: Followed | None = None
        self._sampling = dict[str, Clock | None]()  # the clock of each request in the engine, by its name
        self._awake = asyncio.Event()
        self._awake.set()
        self.in_flight = 0
        self._busy_since = 0.0
        self._busy_s = 0.0
        self._generated = 0
        self._started = time.monotonic()
        self.cpu_before = (0.0, 0.0)  # of engine and actor, for imports and the loading of the model
        self._step: object = None  # the engine's last one, as its statistics show it
        self._step_seen = time.monotonic()

    def __repr__(self) -> str:
        """What Ray's dashboard calls it."""
        return self.spec.name

    async def start(self) -> WorkerStatus:
        """Start the engine. Takes half a minute: mostly imports."""
        self.worlds.start()
        self.engine = await Engine.start(self.spec.engine)
        self.cpu_before = _cpu_s(_processes())
        return await self.ping()

    @ray.method(concurrency_group=ASIDE)
    async def start_phase(self) -> str:
        """What the start of the engine is at, asked while it blocks the loop of all other calls; "" where unknown."""
        return engine_start.phase()

    async def connect(self, addresses: Mapping[str, str]) -> None:
        """Where the run's own services listen by now, by their names."""
        self.worlds.connect(addresses)

    def _engine(self) -> Engine:
        if self.engine is None:
            raise EngineFailed(f"{self.spec.name} has no engine: start() was not called")
        return self.engine

    async def run_group(self, ticket: Ticket, plan: RolloutPlan) -> tuple[tuple[TrajectorySummary, ...], Group]:
        """What the driver sees of the group, and the group: two objects, of which the second stays on this node."""
        if self.version is None:
            raise EngineFailed(f"{self.spec.name} holds no published weights: it may not serve")
        key = plan.purpose, ticket.sequence, ticket.attempt
        with track_progress() as progress, self.worlds.play(plan, ticket.task) as playing:
            self._playing[key] = progress
            try:
                group = await run_group(self._player, playing, ticket, plan)
            finally:
                if self._playing.get(key) is progress:
                    del self._playing[key]
        return summarize_group(group), group

    async def idle_s(self, purpose: str, sequence: int, attempt: int) -> float | None:
        """For how many seconds nothing has gone on in a group; None where it is not played here."""
        group = self._playing.get((purpose, sequence, attempt))
        if group is not None and not self._awake.is_set():
            return 0.0  # it is no episode's fault that the engine sleeps
        return None if group is None else idle_s(group, self._playing.values())

    async def generate(self, context: Ints, request: TurnRequest) -> Completion:
        """One completion, once there is a seat. First come, first served; no episode's clock runs meanwhile. What
        has priority is served before all else."""
        episode = asyncio.current_task()
        if episode is not None and (self._followed is None or self._followed.episode.done()):
            self._followed = Followed(episode)
        followed = self._followed if self._followed is not None and self._followed.episode is episode else None
        if followed is not None:
            followed.ask(request.messages)
        self.waiting += 1
        try:
            with pause_deadlines():
                await self.seats.acquire(priority=request.priority)
        finally:
            self.waiting -= 1
        try:
            while not self._awake.is_set():
                with pause_deadlines():
                    await self._awake.wait()
            completion = await self._generate_in_seat(context, request)
        finally:
            self.seats.release()
        if followed is not None:
            followed.messages = (*request.messages, Message(role="assistant", content=completion.text))
        return completion

    async def _generate_in_seat(self, context: Ints, request: TurnRequest) -> Completion:
        self._requests += 1
        if not self.in_flight:
            self._busy_since = time.monotonic()
        self.in_flight += 1
        engine, name = self._engine(), f"{self.spec.name}-{self._requests}"
        try:
            with cut_at_deadline(lambda: engine.cut(name)) as self._sampling[name]:
                try:
                    completion = await engine.generate(context, request, name)
                finally:
                    self._leave_engine(name)
        except PromptTooLong as error:
            raise EpisodeBroken(Failure(kind=FailureKind.DATA, where="engine", detail=str(error))) from error
        finally:
            self.in_flight -= 1
            if not self.in_flight and self._awake.is_set():
                self._end_busy()
        self._generated += len(completion.token_ids)
        return completion

    def _end_busy(self) -> None:
        self._busy_s += time.monotonic() - self._busy_since

    def _leave_engine(self, name: str) -> None:
        clock = self._sampling.pop(name)
        if not self._awake.is_set():
            continue_clocks(clock)

    async def sleep(self) -> None:
        """Leave the device to others until `wake`: no episode's clock runs meanwhile."""
        if self._awake.is_set():
            if self.in_flight:
                self._end_busy()
            self._awake.clear()
            for clock in self._sampling.values():
                stop_clocks(clock)
        await self._engine().sleep()

    async def wake(self) -> None:
        await self._engine().wake()
        if self._awake.is_set():
            return
        self._awake.set()
        self._busy_since = time.monotonic()
        now = asyncio.get_running_loop().time()
        for clock in self._sampling.values():
            continue_clocks(clock)
        for group in self._playing.values():
            group.at = now

    async def load_weights(self, published: WeightManifest, probe: Sequence[Sequence[int]]) -> LoadResult:
        """Swap in a published version while requests are in flight, then show what the engine now computes."""
        started = time.monotonic()
        engine = self._engine()
        try:
            await engine.load(published)
        except BaseException:
            self.version = None  # half loaded or old: either way it may not serve
            raise
        loaded = time.monotonic()
        logprobs = tuple(map(tuple, await asyncio.gather(*map(engine.prompt_logprobs, probe))))
        self.version = published.version
        seconds, probe_s = loaded - started, time.monotonic() - loaded
        return LoadResult(version=published.version, seconds=seconds, probe_s=probe_s, probe_logprobs=logprobs)

    async def adopt(self) -> None:
        """Serve the weights of the folder that the engine was started from, as version 0."""
        self.version = 0

    async def ping(self) -> WorkerStatus:
        """Counters, and a sign of life: an engine with requests takes steps. Raises EngineFailed when it does not."""
        now = time.monotonic()
        stats = self.engine.stats() if self.engine is not None else None
        if stats is not self._step or not self.in_flight or not self._awake.is_set():
            self._step, self._step_seen = stats, now
        idle_s = now - self._step_seen
        if idle_s > self.spec.stall_s:
            raise EngineFailed(f"{self.spec.name}: no engine step for {idle_s:.0f} s with {self.in_flight} requests")
        processes = _processes()
        engine_cpu_s, own_cpu_s = _cpu_s(processes)
        return WorkerStatus(
            pid=os.getpid(),
            log=log_file(),
            version=self.version,
            generated_tokens=self._generated,
            busy_s=self._busy_s + (now - self._busy_since if self.in_flight and self._awake.is_set() else 0.0),
            alive_s=now - self._started,
            rss_mb=sum(map(_resident_bytes, processes)) / 2**20,
            engine_cpu_s=engine_cpu_s - self.cpu_before[0],
            own_cpu_s=own_cpu_s - self.cpu_before[1],
            engine=replace(stats or IDLE, waiting=(stats or IDLE).waiting + self.waiting),
            tools=await self.worlds.tool_stats(),
            worlds_lost=tuple(self.worlds.lost),
            requests=self.in_flight,
            idle_s=idle_s,
            playing=self._followed.excerpt() if self._followed is not None else None,
        )

    async def stop(self) -> None:
        await self.worlds.stop()
        if self.engine is not None:
            self.engine.stop()
            self.engine = None


@cache
def log_file() -> str:
    """In a cluster of several nodes as `scp` takes it: 10.0.0.2:/tmp/ray/session_.../logs/worker-....out"""
    target = os.readlink("/proc/self/fd/1")
    if not os.path.isfile(target):
        return ""
    alone = not ray.is_initialized() or only_node()
    return target if alone else f"{ray.util.get_node_ip_address()}:{target}"


def _processes() -> list[psutil.Process]:
    """This one, and all below it."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _resident_bytes(process: psutil.Process) -> int:
    try:
        rss: int = process.memory_info().rss
        return rss
    except psutil.Error:  # a tool's process that ended meanwhile
        return 0


def _is_engine(process: psutil.Process) -> bool:
    try:
        return str(process.name()).startswith(ENGINE_PROCESS)
    except psutil.Error:
        return False


def _cpu_s(processes: Sequence[psutil.Process]) -> tuple[float, float]:
    """Of the engine's, and of the first: the actor's own."""
    actor, *children = processes
    return sum(map(_cpu_used_s, filter(_is_engine, children))), _cpu_used_s(actor)


def _cpu_used_s(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
        return float(used.user + used.system)
    except psutil.Error:
        return 0.0
