"""A world and a reward that harm whoever is played beside them, for one task. `tests/e2e/test_blocking.py`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass

from envs.base import World
from rlsys.types import EpisodeEnd, Message, Reward, Step, Task, Transcript

BAD = "bad"


def sleep() -> None:
    time.sleep(1000)


def spin() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")  # within one call of C code: no other thread gets a turn


COMMAND = ["sleep", "1017"]


def wait() -> None:
    """For sixteen commands at a time, and where one ends for the next."""

    def again() -> None:
        while True:
            subprocess.run(COMMAND, check=False)

    for _ in range(15):
        threading.Thread(target=again, daemon=True).start()
    again()


def leave() -> None:
    os._exit(3)


def crash() -> None:
    ctypes.string_at(0)


class Name(str):
    """Goes into a pickle and does not come out of it."""

    def __new__(cls, first: str, last: str) -> Name:
        return super().__new__(cls, first + last)


def odd() -> Step:
    return Step(end=EpisodeEnd.ANSWERED, metrics={Name("a", "b"): 1.0})


def nothing() -> None: ...


HARM = {"sleep": sleep, "spin": spin, "wait": wait, "leave": leave, "crash": crash, "odd": nothing, "": nothing}


@dataclass(frozen=True, kw_only=True)
class BadConfig:
    name: str = "tests.fakes.bad_worlds.BadWorld"
    step: str = ""  # what the bad task does to the others, a name of HARM
    make: str = ""  # what making the world does
    pause_s: float = 0.0  # of every step, awaited


@dataclass(frozen=True, kw_only=True)
class BadRewardConfig:
    name: str = "tests.fakes.bad_worlds.BadReward"
    harm: str = ""


class BadWorld(World):
    """Two messages: the first is answered, the second ends the episode."""

    max_turns = 2

    def __init__(self, config: BadConfig) -> None:
        self.config = config
        HARM[config.make]()

    def env(self, task: Task) -> BadEnv:
        return BadEnv(self.config, task)


class BadEnv:
    stop_strings = ()

    def __init__(self, config: BadConfig, task: Task) -> None:
        self.config, self.task = config, task

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content=self.task.task_id),)

    def final_state(self) -> dict[str, str]:
        return {"played": self.task.task_id}

    async def step(self, text: str, *, turns_left: int) -> Step:
        await asyncio.sleep(self.config.pause_s)
        if turns_left:
            return Step(reply=Message(role="user", content="on"))
        if self.task.task_id.startswith(BAD):
            HARM[self.config.step]()
            if self.config.step == "odd":
                return odd()
        return Step(end=EpisodeEnd.ANSWERED)


class BadReward:
    def __init__(self, config: BadRewardConfig) -> None:
        self.config = config

    def __call__(self, transcript: Transcript) -> Reward:
        if transcript.task.task_id.startswith(BAD):
            HARM[self.config.harm]()
        return Reward(value=1.0, parts={"correct": 1.0})
