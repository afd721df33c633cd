"""Functions that a person may name as tools, good ones and those that go wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Literal, Optional


def shout(text: str, times: int = 1) -> str:
    """Say a text loudly.

    Args:
        text: What to say.
        times: How often.
    """
    print("this line goes nowhere")
    return " ".join([text.upper()] * times)


async def later(seconds: float) -> dict[str, float]:
    """Wait, then say how long."""
    await asyncio.sleep(seconds)
    return {"waited": seconds}


_ours, _theirs = socket.socketpair()
_kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
_left: list[asyncio.Task[None]] = []
_said: list[str] = []


async def echoes(text: str) -> str:
    """By a connection that all calls share."""
    if not _kept:
        _kept.append(await asyncio.open_connection(sock=_ours))
    reader, writer = _kept[0]
    writer.write(text.encode() + b"\n")
    await writer.drain()
    _theirs.sendall(_theirs.recv(100))
    return (await reader.readline()).decode().strip()


async def leaves(how: str) -> str:
    """ "a task": that says something a moment later. "nothing": wait for longer, and tell what was said."""

    async def speak() -> None:
        try:
            await asyncio.sleep(0.01)
            _said.append("late")
        finally:
            _said.append("over")

    if how == "a task":
        _left.append(asyncio.create_task(speak()))
    await asyncio.sleep(0 if how == "a task" else 0.1)
    return " ".join(_said)


def choose(colour: Literal["red", "blue"], size: Optional[int] = None, names: list[str] | None = None) -> str:
    return f"{colour} {size} {names}"


def who() -> int:
    """The number of the process that answers."""
    return os.getpid()


def goes_wrong(how: str) -> str:
    """Do one of the things that a tool must not."""
    if how == "hang":
        time.sleep(1000)
    if how == "hang and ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        sys.exit(3)
    if how == "memory":
        return str(len(bytearray(1 << 40)))
    if how == "flood":
        return "x" * (1 << 26)
    if how == "print":
        print("x" * (1 << 24))
    if how == "raise":
        raise ValueError("no such thing " + "x" * 10_000)
    if how in ("lie", "torrent"):
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with suppress(OSError):
                    os.write(int(name), b"[1]\n" if how == "lie" else b"x" * (1 << 24))
    if how == "leave a child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        time.sleep(1000)
    if how.endswith("afterwards"):
        threading.Timer(0.1, spoil, [how]).start()
    if how == "surrogate":
        return "\ud800"
    return "fine"


def spoil(how: str) -> None:
    if how == "exit afterwards":
        os._exit(1)
    line = {
        "garbage afterwards": b"garbage\n",
        "answer afterwards": b'{"id": "1", "result": "of another call"}\n',
        "flood afterwards": b"x\n" * (1 << 24),
    }[how]
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.write(int(name), line)


def takes(*texts: str) -> str:
    return "".join(texts)


NOT_A_FUNCTION = 5
