"""Where a rollout worker's episodes meet their environments: text goes to a separate process, and comes back.

    the worker's event loop                       the process (`actors.env_server`)
    tokens, engine, weights, pings   -- text -->  environments, their tools, rewards

Code that blocks, crashes or never ends is found and ended there (`actors.env_worker`). The engine continues to
sample meanwhile, and every other group of that process is played again in the next one. Where the cause is unknown,
each of those groups plays alone, one after the other, in a second process: so the next end has one known cause.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from actors.env_worker import CannotStart, EnvWorker, EnvWorkerSpec
from envs.services.stats import ToolStats, merge
from rlsys.broken import EpisodeBroken, EvictedByCrash
from rlsys.clock import deadline, pause_deadlines
from rlsys.config.identity import config_key
from rlsys.rollout import RolloutPlan
from rlsys.types import Message, Reward, Step, Task, Transcript, TurnSettings

log = logging.getLogger("rlsys.worlds")


class EnvWorkerPool:
    """The process that plays, and the next one when that is over."""

    def __init__(
        self, spec: EnvWorkerSpec, start: Callable[[EnvWorkerSpec, Callable[[Any], None]], EnvWorker] = EnvWorker
    ) -> None:
        self.spec = spec
        self.lost: list[str] = []  # why each earlier process was ended
        self._start = start
        self.process: EnvWorker | None = None
        self._numbers = count(1)
        self._playing: Counter[str] = Counter()  # groups by world
        self._retired: list[Mapping[str, ToolStats]] = []
        self._addresses: Mapping[str, str] = {}
        self._apart: EnvWorkerPool | None = None  # where suspects play
        self._suspects = 0  # that play there, or wait for it
        self._turn = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()

    def start(self) -> EnvWorker:
        """The process, which comes up in the background."""
        if self.process is None:
            self.process = self._start(self.spec, self._on_process_end)
            self._send_addresses(self.process)
        return self.process

    def connect(self, addresses: Mapping[str, str]) -> None:
        """Where the run's own services listen, by their names: for this process and those after it."""
        self._addresses = addresses
        if self.process is not None:
            self._send_addresses(self.process)
        if self._apart is not None:
            self._apart.connect(addresses)

    def _send_addresses(self, process: EnvWorker) -> None:
        if self._addresses:
            process.ask(None, "connect", self._addresses).add_done_callback(self._log_connect_error)

    def _log_connect_error(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, (EpisodeBroken, CannotStart)):  # of a process that is over
            log.warning("%s: a world does not go where its service is: %s", self.spec.worker, error)

    async def prepare(self, plan: RolloutPlan, keys: tuple[str, str]) -> tuple[EnvWorker, int]:
        """A process that is ready to play the configs that these are the keys of, and the turns of an episode.

        Raises what making the world raises.
        """
        process = self.start()
        if keys not in process.plans:
            playing = frozenset((*plan.together, *(world for world, groups in self._playing.items() if groups)))
            for stale_keys in [pair for pair in process.plans if pair[0] not in playing | {keys[0]}]:
                del process.plans[stale_keys]  # its world is closed for this one: a later group asks for it again
            process.plans[keys] = process.ask(None, "prepare", keys, plan.env, plan.reward, playing)
        return process, await asyncio.shield(process.plans[keys])

    def play(self, plan: RolloutPlan, task: Task) -> GroupSession:
        """`with worlds.play(plan, task) as playing:` around one group."""
        return GroupSession(self, next(self._numbers), plan, task)

    def begin_group(self, group: GroupSession) -> None:
        self._playing[group.world] += 1

    def end_group(self, group: GroupSession) -> None:
        self._playing[group.world] -= 1
        if self.process is not None:
            self.process.end_group(group)

    async def apart(self) -> EnvWorkerPool:
        """Where a suspect plays alone, once the others before it are done. `leave` gives it back."""
        self._suspects += 1
        try:
            with pause_deadlines():
                await self._turn.acquire()
        except BaseException:
            self._suspects -= 1
            raise
        if self._apart is None:
            self._apart = EnvWorkerPool(self.spec, self._start)
            self._apart.lost = self.lost
            self._apart.connect(self._addresses)
        return self._apart

    def leave(self) -> None:
        self._suspects -= 1
        self._turn.release()
        if not self._suspects and self._apart is not None:
            self._apart.rest()

    def rest(self) -> None:
        """No group plays here for now: the process ends."""
        if self.process is not None:
            process, self.process = self.process, None
            self._retire(process)
            stopping = asyncio.create_task(process.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    async def tool_stats(self) -> Mapping[str, ToolStats]:
        """By tool, counted since the worker's start. As of its last answer where the process is busy."""
        apart = await self._apart.tool_stats() if self._apart is not None else {}
        process = self.process
        current = await process.fresh_stats() if process is not None else {}
        if self.process is not process:
            current = {}  # it ended meanwhile, and what it had counted stands among the others
        by_tool: defaultdict[str, list[ToolStats]] = defaultdict(list)
        for counted in [*self._retired, current, apart]:
            for tool, stats in counted.items():
                by_tool[tool].append(stats)
        return {tool: merge(all_stats) for tool, all_stats in by_tool.items()}

    async def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            await process.stop()
        if self._apart is not None:
            await self._apart.stop()
        await asyncio.gather(*self._stopping)

    def _on_process_end(self, process: EnvWorker) -> None:
        log.warning("%s: %s; the others are played again\n%s", self.spec.worker, process.reason, process.stack)
        self.lost.append(process.reason)
        self.process = None
        self._retire(process)

    def _retire(self, process: EnvWorker) -> None:
        """Keep the counters of a process that ended, with its gauges (queued, in flight, outage) at zero."""
        counted = {
            tool: replace(s, breaker_open=False, queued=0, in_flight=0, outage="") for tool, s in process.stats.items()
        }
        self._retired.append(counted)


class GroupSession:
    """One group's episodes and rewards, in whichever process there is."""

    def __init__(self, worlds: EnvWorkerPool, number: int, plan: RolloutPlan, task: Task) -> None:
        self.number = number
        self._keys = self.world, self._reward = config_key(plan.env), config_key(plan.reward)
        self.what = f"task {task.task_id} of {getattr(plan.env, 'name', plan.env)}"
        self.failed: EpisodeBroken | None = None  # once it has ended a process
        self.suspect = False  # once it may have
        self._worlds, self._plan = worlds, plan
        self._home = worlds
        self._moving = asyncio.Lock()
        self._episodes = count()
        self._compares = False

    def __enter__(self) -> GroupSession:
        self._worlds.begin_group(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._worlds.end_group(self)
        if self._worlds is not self._home:
            self._home.leave()

    async def max_turns(self) -> int:
        while True:
            try:
                return (await self._worlds.prepare(self._plan, self._keys))[1]
            except EvictedByCrash:  # another group's doing: there is a new process
                continue

    async def env(self, task: Task) -> RemoteEnv:
        """A new episode of the task."""
        process, episode = await self._process(), next(self._episodes)
        prompt, settings = await process.ask(self, "open", episode, self.world, task)
        return RemoteEnv(self, process, episode, prompt, settings)

    async def score(self, transcript: Transcript) -> Reward:
        process = await self._process()
        reward: Reward
        reward, self._compares = await process.ask(self, "score", self._reward, transcript)
        return reward

    async def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
        """The rewards of the siblings, seen together; as they are for most."""
        while self._compares:
            try:
                async with deadline(self._plan.timeout_s):
                    process = await self._process()
                    compared: Sequence[Reward] = await process.ask(self, "compare", self._reward, transcripts, rewards)
                    return compared
            except EvictedByCrash:
                continue
        return rewards

    async def _process(self) -> EnvWorker:
        if self.failed is not None:
            raise self.failed
        if self.suspect and self._worlds is self._home:
            await self._move_to_isolation()
        return (await self._worlds.prepare(self._plan, self._keys))[0]

    async def _move_to_isolation(self) -> None:
        """All siblings together: the first of them moves the group."""
        with pause_deadlines():
            await self._moving.acquire()
        try:
            if self._worlds is self._home:
                apart = await self._home.apart()
                self._home.end_group(self)
                self._worlds = apart
                apart.begin_group(self)
        finally:
            self._moving.release()


class RemoteEnv:
    """An episode in the process where it began."""

    def __init__(
        self,
        group: GroupSession,
        process: EnvWorker,
        episode: int,
        prompt: tuple[Message, ...],
        settings: TurnSettings,
    ) -> None:
        self.stop_strings: Sequence[str] = settings.stop
        self.settings = settings
        self._group, self._process, self._episode, self._prompt = group, process, episode, prompt

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, **kwargs: Any) -> Step:
        """kwargs: `turns_left`, with an offer the `calls` in the text, and `sampled` where its settings ask for it."""
        step: Step = await self._process.ask(self._group, "step", self._episode, text, kwargs)
        return step

    async def close(self) -> None:
        """Of an attempt that broke, before its group is over."""
        await self._process.ask(self._group, "leave", self._episode)

    async def final_state(self) -> Mapping[str, Any] | None:
        state: Mapping[str, Any] | None = await self._process.ask(self._group, "state", self._episode)
        return state
