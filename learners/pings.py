"""During a call to all ranks: each is pinged, and a call that takes long is reported.

A rank answers its ping on a thread of its own: it says of a busy rank that its process lives, and which row it is at.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

from ray.exceptions import RayError

from rlsys.errors import LearnerLost
from rlsys.system.calls import within
from rlsys.system.incidents import Incident, warn
from rlsys.system.patience import LEAST_S
from rlsys.system.supervisor import keep_pinging

log = logging.getLogger("rlsys.learner")

T = TypeVar("T")
Ping = Callable[[], Awaitable[Any]]
OnPing = Callable[[int, Any], None]  # a rank's number, and what it answered to a ping

LONG_S = LEAST_S  # no call is called long before
LONG = 3  # times the usual
REMEMBERED = 20  # calls of a kind


def ignore(rank: int, answer: Any) -> None:
    """Of a ping, where nobody asks."""


@dataclass(slots=True)
class PingMonitor:
    ping_timeout_s: float
    durations: defaultdict[str, deque[float]] = field(  # of the latest calls, in seconds, by kind
        default_factory=lambda: defaultdict(lambda: deque[float](maxlen=REMEMBERED))
    )

    async def during(
        self,
        work: asyncio.Future[T],
        activity: str,
        pings: Sequence[Ping],
        *,
        first_s: float = LONG_S,
        on_ping: OnPing = ignore,
    ) -> T:
        """What the work gives. Raises LearnerLost when a rank does not answer its ping meanwhile.

        activity: "updating on version 7": calls that begin with the same word are of one kind. first_s: after which the
        first of a kind is long. on_ping: gets a rank's number and its answer to each ping.
        """
        began, kind = time.monotonic(), activity.split()[0]
        watchers = [asyncio.ensure_future(self._remind(activity, kind, first_s))]
        pinging = (self._keep_pinging(ping, rank, activity, on_ping) for rank, ping in enumerate(pings))
        watchers += [asyncio.ensure_future(coroutine) for coroutine in pinging]
        watching = asyncio.gather(*watchers)
        every: list[asyncio.Future[Any]] = [work, watching, *watchers]
        try:
            await asyncio.wait(every[:2], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await watching
            answer = await work
        finally:
            for future in every:
                future.cancel()
            await asyncio.gather(*every, return_exceptions=True)
        self.durations[kind].append(time.monotonic() - began)
        return answer

    async def _keep_pinging(self, ping: Ping, rank: int, activity: str, on_ping: OnPing) -> None:
        async def ask() -> None:
            on_ping(rank, await within(ping(), self.ping_timeout_s))

        try:
            await keep_pinging(ask)
        except TimeoutError as error:
            raise LearnerLost(
                f"learner {activity}: rank {rank} hangs: it has not answered a ping for {self.ping_timeout_s:g} s "
                "(learner.ping_timeout_s)"
            ) from error
        except RayError:  # it died: the call that it died under says so
            return

    async def _remind(self, activity: str, kind: str, first_s: float) -> None:
        """Say that it takes long, then again whenever it has taken twice as long as when it was said last."""
        usual = self.durations[kind]
        so_far, next_s = 0.0, max(LONG_S, LONG * median(usual) if usual else first_s)
        while True:
            await asyncio.sleep(next_s - so_far)
            so_far, next_s = next_s, 2 * next_s
            text = reminder(activity, so_far, list(usual))
            warn(log, Incident(kind="stall", who="learner", text=text))


def reminder(activity: str, so_far: float, usual: Sequence[float]) -> str:
    """`learner updating on version 7 has taken 90 s so far; usual are 21 s (the median of 8)`."""
    note = f"usual are {median(usual):.0f} s (the median of {len(usual)})" if usual else "it is the first of its kind"
    return f"learner {activity} has taken {so_far:.0f} s so far; {note}"
