"""Calls to actors: every one has a deadline, and its error is one line that names who, what and how long.

That is law 10 of docs/laws.md.
"""

from __future__ import annotations

import time
from typing import Any

from rlsys.errors import RunFailed
from rlsys.system.deadlines import within
from rlsys.system.lost_nodes import lost_node

STOP_S = 10.0  # for an actor to end in order
SERVICE_TOKEN = "RLSYS_SERVICE_TOKEN"  # the variable that holds the secret of a run's tool services


async def call(ref: Any, what: str, timeout_s: float) -> Any:
    """The result of a Ray call. Raises RunFailed when there is none in time, and what Ray raises."""
    started = time.monotonic()
    try:
        return await within(ref, timeout_s)
    except TimeoutError as error:
        waited = time.monotonic() - started
        raise RunFailed(
            f"{what}: no answer after {waited:.0f} s; see its log in the Ray dashboard or raise the deadline"
        ) from error


async def ask_to_stop(handle: Any) -> None:
    await call(handle.stop.remote(), "stopping", STOP_S)


def reason(error: BaseException) -> str:
    """One line: what was raised on the other side, not where Ray heard of it; or that its whole node is gone."""
    if node := lost_node(error):
        return node
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).strip().split("\n") if line.strip()]
    return f"{type(cause).__name__}: {lines[-1][:300]}" if lines else type(cause).__name__
