"""The process that a rollout worker's environments and rewards run in. `actors.env_worker_pool` starts it and asks it.

It has one event loop, as an environment expects, and nothing else lives on that loop: code that blocks it, crashes or
fills the memory harms episodes, and neither the engine nor the worker's answers to pings.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from actors.black_box import CallMark, Recorder
from actors.scoring import RewardService, ScoringSpec
from envs import make_reward, new_player
from envs.base import World
from envs.rewards import Compares, RewardFunction
from envs.services.stats import ToolStats, merge
from rlsys.rollout import Env, EpisodeBroken, failure_of, first_turn_settings
from rlsys.state import final_state
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.system.orphans import die_with
from rlsys.types import Message, Reward, Step, Task, Transcript, TurnSettings

_HEADER = 8  # bytes of a frame's length
WHERE = {"open": "environment", "step": "environment", "state": "environment", "score": "reward", "compare": "reward"}


def pack(message: Any) -> bytes:
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(_HEADER, "big") + body


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message. Raises IncompleteReadError when the other side is gone."""
    size = int.from_bytes(await reader.readexactly(_HEADER), "big")
    return pickle.loads(await reader.readexactly(size))


class EnvServer:
    """Worlds, episodes and rewards, by the calls that `actors.env_worker_pool` makes. What these raise is passed on."""

    def __init__(self, scoring: ScoringSpec) -> None:
        self.rewards = RewardService(scoring)
        self._worlds: dict[str, World] = {}  # by `config_key`, like rewards and their configs
        self._reward_configs: dict[str, Any] = {}
        self._made_rewards: dict[str, RewardFunction] = {}
        self._envs: dict[tuple[int, int], Env] = {}  # by group and episode
        self._addresses: Mapping[str, str] = {}

    async def connect(self, addresses: Mapping[str, str]) -> None:
        """Where the run's own services listen, by their names. Worlds that use them go there from now on."""
        self._addresses = addresses
        self.rewards.connect(addresses, os.environ[SERVICE_TOKEN])
        for world in self._worlds.values():
            self._connect(world)

    def _connect(self, world: World) -> None:
        if self._addresses and world.service in self._addresses:
            world.connect(self._addresses[world.service], os.environ[SERVICE_TOKEN])

    async def prepare(self, keys: tuple[str, str], env: Any, reward: Any, playing: frozenset[str]) -> int:
        """Get ready to play two configs, which are named by their keys from then on; returns the turns of an episode.

        One world per config, however many groups ask for it. A new stage's closes those that no group plays. The reward
        is made here too: what it loads may take longer than a call that scores may.
        """
        key, reward_key = keys
        self._reward_configs[reward_key] = reward
        if key not in self._worlds:
            self._worlds[key] = new_player(env)  # before the first await: many groups come at once
            self._connect(self._worlds[key])
            for idle in [self._worlds.pop(name) for name in list(self._worlds) if name not in playing | {key}]:
                await idle.close()
        world = self._worlds[key]
        with suppress(Exception, SystemExit):  # the episodes that are scored with it fail by what it raises
            self._get_reward(reward_key)
        return world.max_turns

    def _get_reward(self, key: str) -> RewardFunction:
        if key not in self._made_rewards:
            self._made_rewards[key] = make_reward(self._reward_configs[key])
        return self._made_rewards[key]

    async def open(self, group: int, episode: int, env: str, task: Task) -> tuple[tuple[Message, ...], TurnSettings]:
        """Begin an episode in the world whose config has this key: its first messages, and how they are answered."""
        opened = self._envs[group, episode] = await self._worlds[env].open_env(task)
        return tuple(opened.first_messages()), first_turn_settings(opened)

    async def step(self, group: int, episode: int, text: str, kwargs: Mapping[str, Any]) -> Step:
        """kwargs: what `Env.step` takes by name."""
        return await self._envs[group, episode].step(text, **kwargs)

    async def state(self, group: int, episode: int) -> Mapping[str, Any] | None:
        """Where the episode stands at its end, for the reward and for the trajectory's line."""
        return await final_state(self._envs[group, episode])

    async def score(self, group: int, key: str, transcript: Transcript) -> tuple[Reward, bool]:
        """(the reward, whether the rewards of the group have to be compared)."""
        reward = self._get_reward(key)
        return await self.rewards.score(reward, transcript), isinstance(reward, Compares)

    async def compare(
        self, group: int, key: str, transcripts: Sequence[Transcript], rewards: Sequence[Reward]
    ) -> Sequence[Reward]:
        reward = self._get_reward(key)
        return reward.compare(transcripts, rewards) if isinstance(reward, Compares) else rewards

    async def end(self, group: int) -> None:
        """The caller no longer needs this group's episodes."""
        for _, episode in [key for key in self._envs if key[0] == group]:
            await self.leave(group, episode)

    async def leave(self, group: int, episode: int) -> None:
        """The caller no longer needs this episode: what it holds is let go of."""
        env = self._envs.pop((group, episode), None)
        with suppress(Exception):
            if (close := getattr(env, "close", None)) is not None and isinstance(closing := close(), Awaitable):
                await closing

    async def tool_stats(self) -> Mapping[str, ToolStats]:
        """Of every world made here, worlds of different stages added up."""
        by_tool = {tool: [stats] for tool, stats in self.rewards.tool_stats().items()}
        for world in self._worlds.values():
            for tool, stats in world.tool_stats().items():
                by_tool.setdefault(tool, []).append(stats)
        return {tool: merge(all_stats) for tool, all_stats in by_tool.items()}

    async def close(self) -> None:
        for world in self._worlds.values():
            await world.close()
        await self.rewards.close()


async def answer(work: Coroutine[Any, Any, Any], method: str) -> tuple[str, Any]:
    """("value", what it gives), ("broken", the typed failure) or ("raised", the error)."""
    try:
        return "value", await work
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if method not in WHERE:
            return "raised", error
        return "broken", failure_of(error, WHERE[method])
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return "broken", failure_of(error, WHERE.get(method, "environment"))


def pack_answer(number: int, kind: str, value: Any) -> bytes:
    """The frame of an answer. Its value is packed apart: where that cannot be read, its number can, and one call fails.

    What cannot be pickled is described in words.
    """
    try:
        body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if kind == "raised":
            pickle.loads(body)  # some errors go in and do not come out
    except Exception as error:
        if kind == "raised":
            body = pickle.dumps(RuntimeError(f"{type(value).__name__}: {value}"))
        else:
            kind, body = "broken", pickle.dumps(failure_of(error, "environment"))
    return pack((number, kind, body))


def unpack_answer(kind: str, body: bytes, method: str) -> Any:
    """What a call of `method` gave. Raises what it raised; EpisodeBroken where it gave what cannot be read here."""
    try:
        value = pickle.loads(body)
    except Exception as error:
        raise EpisodeBroken(failure_of(error, WHERE.get(method, "environment"))) from error
    if kind == "value":
        return value
    raise EpisodeBroken(value) if kind == "broken" else value


class _Calls:
    """Each call is a separate task, marked in the black box for as long as it works."""

    def __init__(self, server: EnvServer, recorder: Recorder, writer: asyncio.StreamWriter) -> None:
        self._server, self._recorder, self._writer = server, recorder, writer
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(self, number: int, group: int, method: str, arguments: tuple[Any, ...]) -> None:
        if method == "cancel":
            if number in self._tasks:
                self._tasks[number].cancel()
            return
        context = self._recorder.context(CallMark(group, number))
        work = self._work(number, method, arguments)
        self._tasks[number] = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks[number].add_done_callback(lambda _: self._tasks.pop(number))

    async def _work(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        kind, value = await answer(getattr(self._server, method)(*arguments), method)
        self._writer.write(pack_answer(number, kind, value))


async def serve(connection: socket.socket, recorder: Recorder) -> None:
    asyncio.get_running_loop().set_task_factory(recorder.task_factory)
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        calls = _Calls(EnvServer(await receive(reader)), recorder, writer)
        while True:
            calls.begin(*await receive(reader))
    except (EOFError, ConnectionError):
        os._exit(0)  # the worker is gone: what its environments still do is useless


def main() -> None:
    """The last arguments: the parent's pid, and the numbers of two files, the socket and the black box."""
    parent, descriptor, box = map(int, sys.argv[-3:])
    die_with(parent)
    signal.signal(signal.SIGINT, lambda *_: None)  # the worker decides when it ends
    for inherited in (descriptor, box):
        os.set_inheritable(inherited, False)
    recorder = Recorder(box)
    recorder.tell_stacks()
    asyncio.run(serve(socket.socket(fileno=descriptor), recorder))
