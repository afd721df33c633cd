"""Slots: back-pressure and the staleness bound, in one place.

A slot is charged when a group starts and freed when the weights trained on it are live on every engine. There are
`groups_per_step * (1 + max_policy_lag)` of them, and a batch is taken in order of start among the finished groups, once
the early ones that must not wait any longer are among them (`_ready`). So a group that started at version s is trained
at s + max_policy_lag at the latest: the bound holds by admission, nothing is thrown away, and short episodes are not
favoured.

    driver's feeder   admit()            waits for a free slot             unblocked by release()
    rollout tasks     finish(group)      never waits
    driver's stepper  take(version)      waits for the early ones and G     unblocked by finish()
    publisher         release(n, live)   never waits
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from rlsys.errors import RunFailed
from rlsys.outlines import Played
from rlsys.types import Ticket


class SlotBuffer:
    def __init__(self, *, groups_per_step: int, max_policy_lag: int, live_version: int) -> None:
        self.groups_per_step = groups_per_step
        self.max_policy_lag = max_policy_lag
        self.live_version = live_version
        self._free = groups_per_step * (1 + max_policy_lag)
        self._running: dict[int, Ticket] = {}  # by sequence
        self._finished: dict[int, Played] = {}
        self._taken: dict[int, Ticket] = {}  # in the stepper's hands, not yet trained
        self._ended = False
        self._changed = asyncio.Condition()

    async def admit(self) -> int:
        """Wait for a free slot and charge it. Returns the live version: the ticket's start version."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._free > 0)
            self._free -= 1
            return self.live_version

    def start(self, ticket: Ticket) -> None:
        """The group of an admitted ticket is on its way."""
        self._running[ticket.sequence] = ticket

    async def finish(self, group: Played) -> None:
        async with self._changed:
            del self._running[group.ticket.sequence]
            self._finished[group.ticket.sequence] = group
            self._changed.notify_all()

    def _ready(self, version: int) -> bool:
        """Enough groups have finished, and among them enough of the early ones.

        A group is trained in time at `start_version + max_policy_lag` or before. G are trained per version, so before
        `version` is trained at most (w - version) * G groups due by w may be left for later, for every w from now on.
        """
        if len(self._finished) < self.groups_per_step:
            return False  # mostly: the rest looks at every open group
        done = [group.ticket for group in self._finished.values()]
        open_due = [ticket.start_version + self.max_policy_lag for ticket in [*self._running.values(), *done]]
        done_due = [ticket.start_version + self.max_policy_lag for ticket in done]
        for w in range(version, version + self.max_policy_lag + 1):
            needed = sum(due <= w for due in open_due) - (w - version) * self.groups_per_step
            assert needed <= self.groups_per_step, f"{needed} groups are due by {w}: admission is broken"
            if sum(due <= w for due in done_due) < needed:
                return False
        return True

    async def take(self, version: int) -> list[Played]:
        """The groups to train `version` on: the earliest started of those that have finished, in order of start."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ready(version) or self._starved)
            if self._starved:
                left = len(self._running) + len(self._finished)
                raise RunFailed(f"only {left} groups are left for a step of {self.groups_per_step}: some were lost")
            chosen = sorted(self._finished)[: self.groups_per_step]
            groups = [self._finished.pop(sequence) for sequence in chosen]
            self._taken = {group.ticket.sequence: group.ticket for group in groups}
            return groups

    async def give_back(self, groups: Sequence[Played], lost: Collection[int]) -> list[Ticket]:
        """What was just taken was not trained. Those that are lost run again: returns their tickets, for that."""
        gone = [group.ticket for group in groups if group.ticket.sequence in lost]
        again = [replace(ticket, attempt=ticket.attempt + 1) for ticket in gone]
        async with self._changed:
            self._taken = {}
            self._running |= {ticket.sequence: ticket for ticket in again}
            self._finished |= {each.ticket.sequence: each for each in groups if each.ticket.sequence not in lost}
            self._changed.notify_all()
        return again

    def trained(self) -> None:
        """The groups taken last are in the weights: a resumed run must not start them again."""
        self._taken = {}

    async def end(self) -> None:
        """No further group will be started."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def _starved(self) -> bool:
        return self._ended and len(self._running) + len(self._finished) < self.groups_per_step

    async def release(self, count: int, *, live_version: int) -> None:
        """Free the slots of `count` trained groups: the weights trained on them are live."""
        async with self._changed:
            self._free += count
            self.live_version = live_version
            self._changed.notify_all()

    @property
    def open_tickets(self) -> list[Ticket]:
        """Started and not yet trained, in order of start: what a resumed run starts again."""
        finished = [group.ticket for group in self._finished.values()]
        tickets = [*self._running.values(), *finished, *self._taken.values()]
        return sorted(tickets, key=lambda ticket: ticket.sequence)
