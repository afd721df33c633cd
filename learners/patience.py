"""Beside a call to all ranks: every rank is pinged, and a call that takes long says so.

An update may take half an hour, and a hung rank looks like a long one: the others wait for it in a collective. The ping
is answered on a thread of its own, so it says of a busy rank only that its process lives. What it waits for is the
interpreter's lock, which torch and NCCL let go of; reading a large batch or collecting garbage may hold it for seconds.
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
from rlsys.system.supervisor import keep_pinging

log = logging.getLogger("rlsys.learner")

T = TypeVar("T")
Ping = Callable[[], Awaitable[object]]

LONG_S = 60.0  # no call is called long before
LONG = 3  # times the usual
REMEMBERED = 20  # calls of a kind


@dataclass(slots=True)
class PingMonitor:
    ping_timeout_s: float
    _took: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque[float](maxlen=REMEMBERED))
    )

    async def during(self, work: asyncio.Future[T], what: str, pings: Sequence[Ping]) -> T:
        """What the work gives. Raises LearnerLost when a rank does not answer its ping meanwhile.

        what: "updating on version 7": calls that begin with the same word are of one kind.
        """
        began, kind = time.monotonic(), what.split()[0]
        beside = [asyncio.ensure_future(self._remind(what, kind))]
        beside += [asyncio.ensure_future(self._keep_pinging(ping, rank, what)) for rank, ping in enumerate(pings)]
        watching = asyncio.gather(*beside)
        every: list[asyncio.Future[Any]] = [work, watching, *beside]
        try:
            await asyncio.wait(every[:2], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await watching
            answer = await work
        finally:
            for each in every:
                each.cancel()
            await asyncio.gather(*every, return_exceptions=True)
        self._took[kind].append(time.monotonic() - began)
        return answer

    async def _keep_pinging(self, ping: Ping, rank: int, what: str) -> None:
        try:
            await keep_pinging(lambda: within(ping(), self.ping_timeout_s))
        except TimeoutError as error:
            raise LearnerLost(
                f"learner {what}: rank {rank} hangs: it has not answered a ping for {self.ping_timeout_s:g} s "
                "(learner.ping_timeout_s)"
            ) from error
        except RayError:  # it died: the call that it died under says so
            return

    async def _remind(self, what: str, kind: str) -> None:
        """Say that it takes long, then again whenever it has taken twice as long as when it was said last."""
        usual = self._took[kind]
        so_far, next_s = 0.0, max(LONG_S, LONG * median(usual) if usual else 0.0)
        while True:
            await asyncio.sleep(next_s - so_far)
            so_far, next_s = next_s, 2 * next_s
            log.warning("%s", reminder(what, so_far, list(usual)))


def reminder(what: str, so_far: float, usual: Sequence[float]) -> str:
    """`learner updating on version 7 has taken 90 s so far; usual are 21 s (the median of 8)`."""
    known = f"usual are {median(usual):.0f} s (the median of {len(usual)})" if usual else "it is the first of its kind"
    return f"learner {what} has taken {so_far:.0f} s so far; {known}"
