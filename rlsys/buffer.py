"""Slots: back-pressure and the staleness bound, in one place.

A slot is charged when a group starts and freed when the weights trained on it are live on every engine. There are
`groups_per_step * (1 + max_policy_lag)` of them. Training version v waits for every group that started at version
v - max_policy_lag or before; those are never more than one batch. (Let k steps be released: at most
k*G + (1 + L)*G groups have ever started, and k*G of them are trained.) So the bound holds by admission, nothing is
thrown away, and short episodes are not favoured: a slow group is waited for exactly when the bound would break.

    driver's feeder   admit()            waits for a free slot             unblocked by release()
    rollout tasks     finish(group)      never waits
    driver's stepper  take(version)      waits for the oldest, then for G   unblocked by finish()
    publisher         release(n, live)   never waits
"""

from __future__ import annotations

import asyncio

from rlsys.types import Group, Ticket


class SlotBuffer:
    def __init__(self, *, groups_per_step: int, max_policy_lag: int, live_version: int) -> None:
        self.groups_per_step = groups_per_step
        self.max_policy_lag = max_policy_lag
        self.live_version = live_version
        self._free = groups_per_step * (1 + max_policy_lag)
        self._running: dict[int, Ticket] = {}  # by sequence
        self._finished: dict[int, Group] = {}
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

    async def finish(self, group: Group) -> None:
        async with self._changed:
            del self._running[group.ticket.sequence]
            self._finished[group.ticket.sequence] = group
            self._changed.notify_all()

    def _due(self, version: int) -> set[int]:
        """Sequences that must be trained at `version`, finished or not: later they would break the bound."""
        limit = version - self.max_policy_lag
        due = {s for s, ticket in self._running.items() if ticket.start_version <= limit}
        return due | {s for s, group in self._finished.items() if group.ticket.start_version <= limit}

    async def take(self, version: int) -> list[Group]:
        """The groups to train `version` on, in order of start: every due one, then the earliest started."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: len(self._finished) >= self.groups_per_step and self._due(version) <= self._finished.keys()
            )
            due = self._due(version)
            assert len(due) <= self.groups_per_step, f"{len(due)} groups are due at once: admission is broken"
            others = sorted(self._finished.keys() - due)
            chosen = sorted(due) + others[: self.groups_per_step - len(due)]
            return [self._finished.pop(sequence) for sequence in sorted(chosen)]

    async def release(self, count: int, *, live_version: int) -> None:
        """Free the slots of `count` trained groups: the weights trained on them are live."""
        async with self._changed:
            self._free += count
            self.live_version = live_version
            self._changed.notify_all()

    @property
    def open_tickets(self) -> list[Ticket]:
        """Started and not yet taken, in order of start: what a resumed run starts again."""
        tickets = [*self._running.values(), *(group.ticket for group in self._finished.values())]
        return sorted(tickets, key=lambda ticket: ticket.sequence)
