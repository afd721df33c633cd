"""Calls to actors: every one has a deadline, and its error is one line that names who, what and how long.

That is law 10 of docs/laws.md. Nothing here needs Ray: its errors are known by their class and text. It raises the same
error for an actor that died alone and for one that went with its node, and says which on one of the last of its lines.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from rlsys.errors import RunFailed

T = TypeVar("T")

STOP_S = 10.0  # for an actor to end in order
SERVICE_TOKEN = "RLSYS_SERVICE_TOKEN"  # the variable that holds the secret of a run's tool services
ON_TIME_S = 0.1  # a timer that fires later than this was held up
LISTEN_S = 5.0  # at most, once more
_CLASSES = {"NodeDiedError", "LocalRayletDiedError"}
_UNCLEAR = "ActorUnavailableError"  # Ray itself learns some seconds later which of the two it was
_SAYS = re.compile(
    r"its node has died|node has crashed|node was (preempted|terminated)|node it was running on is dead"
    r"|raylet (is dead|died|has died|crashed|is unavailable)",
    re.IGNORECASE,
)
_NODE = re.compile(r"node id:? ?([0-9a-f]{8})", re.IGNORECASE)
_WHY = re.compile(r"the actor's node was (.+)")


class Turnstile:
    """Lets one caller through in each round of the event loop.

    A thousand calls that are sent in the same round keep everything else waiting: for seconds, where a thread computes,
    since each call gives the interpreter's lock away and has it back 5 ms later.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        async with self._lock:
            await asyncio.sleep(0)


async def within(answer: Awaitable[T], timeout_s: float) -> T:
    """The answer. Raises TimeoutError when there is none in time; then it is cancelled.

    While an event loop is busy answers pile up unheard, and so do deadlines. A timer that fires late says that the loop
    was busy and nothing about the callee: what has arrived by then was in time, and what is on its way is waited for.
    """
    waiting = asyncio.ensure_future(answer)
    due = time.monotonic() + timeout_s
    try:
        await asyncio.wait({waiting}, timeout=timeout_s)
        late_s = time.monotonic() - due
        if not waiting.done() and late_s > ON_TIME_S:
            await asyncio.wait({waiting}, timeout=min(late_s, LISTEN_S))
        if not waiting.done():
            raise TimeoutError
        return waiting.result()
    finally:
        waiting.cancel()


def describe_lost_node(error: BaseException) -> str:
    """`the Ray node 5e3c0f5a died (terminated unexpectedly: health check failed)`; empty where no node was lost.

    Where Ray does not know yet: that the process, or its node, is gone.
    """
    if getattr(error, "cause", None) is not None:  # what code in an actor raised
        return ""
    text = str(error)
    if type(error).__name__ == _UNCLEAR:
        return "the connection broke: its process or its Ray node is gone"
    if type(error).__name__ not in _CLASSES and not _SAYS.search(text):
        return ""
    node, why = _NODE.search(text), _WHY.search(text)
    name = f"the Ray node {node[1]}" if node else "the Ray node"
    return f"{name} died ({why[1].strip()[:200]})" if why else f"{name} died"


def is_node_lost(error: BaseException) -> bool:
    """Whether its node is gone, and not the process alone."""
    return bool(describe_lost_node(error)) and type(error).__name__ != _UNCLEAR


# What sets the time that a call is waited for; FIXED where nothing does.
WORKER_START, WORKER_CALL = "rollout.start_timeout_s", "rollout.call_timeout_s"
RANK_START, RANK_CALL = "learner.start_timeout_s", "learner.update_timeout_s"
DELIVERY, EPISODE, FIXED = "loop.publish_deadline_s", "rollout.episode_timeout_s", ""


def timeout_message(timeout_s: float, key: str) -> str:
    """`no answer after 300 s (learner.start_timeout_s): raise it if it is honestly that slow`"""
    return f"no answer after {timeout_s:g} s" + (f" ({key}): raise it if it is honestly that slow" if key else "")


async def call(ref: Any, label: str, timeout_s: float, key: str) -> Any:
    """The result of a Ray call. key: that sets `timeout_s`. Raises RunFailed when there is none in time, and what Ray
    raises."""
    try:
        return await within(ref, timeout_s)
    except TimeoutError as error:
        raise RunFailed(f"{label}: {timeout_message(timeout_s, key)}; see its log in the Ray dashboard") from error


async def ask_to_stop(handle: Any) -> None:
    await call(handle.stop.remote(), "stopping", STOP_S, FIXED)


def reason(error: BaseException) -> str:
    """One line: what was raised on the other side, with its notes, not where Ray heard of it; or that its whole node is
    gone."""
    if node := describe_lost_node(error):
        return node
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).strip().split("\n") if line.strip()]
    text = f"{type(cause).__name__}: {lines[-1][:300]}" if lines else type(cause).__name__
    return "; ".join([text, *getattr(cause, "__notes__", ())])
