"""Slots: back-pressure and the staleness bound, in one place.

A slot is charged when a group starts and freed when the weights trained on it are live on every engine. There are
`groups_per_step * (1 + max_policy_lag)` of them, and a batch is taken in order of start among the finished groups, once
the early ones that must not wait any longer are among them (`_ready`). So a group that started at version s is trained
at s + max_policy_lag at the latest: the bound (elsewhere `staleness_threshold`) holds by admission, nothing is thrown
away, and short episodes are not favoured.

A group without signal (zero variance: its rewards are all alike) may give its place to another (dynamic sampling:
DAPO, arXiv 2503.14476, section 3.2; elsewhere `filter_groups`): its slot is free at once, one group more is started,
and the step that comes next takes it along, so that it is accounted for. Nothing waits for weights that it would not
have changed, so the bound is as before.

    driver's feeder   admit()            waits for a free slot             unblocked by release(), finish()
    rollout tasks     finish(group)      never waits
    driver's stepper  take(version)      waits for the early ones and G     unblocked by finish()
    publisher         release(n, live)   never waits
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from rlsys.errors import RunFailed
from rlsys.summaries import GroupRef
from rlsys.types import Ticket


def count_missing(
    version: int, running: Sequence[int], finished: Sequence[int], groups_per_step: int, max_policy_lag: int
) -> int:
    """How many groups have to finish, at least, before `version` can be trained: enough, and among them enough of the
    early ones.

    running, finished: versions at which these groups started. A group is trained in time at
    `start_version + max_policy_lag` or before. G are trained per version, so before `version` is trained at most
    (w - version) * G groups due by w may be left for later, for every w from now on.
    """
    missing = max(0, groups_per_step - len(finished))
    for w in range(version, version + max_policy_lag + 1):
        latest = w - max_policy_lag  # what started then or before is due by w
        num_finished = sum(start <= latest for start in finished)
        num_due = num_finished + sum(start <= latest for start in running) - (w - version) * groups_per_step
        assert num_due <= groups_per_step, f"{num_due} groups are due by {w}: admission is broken"
        missing = max(missing, num_due - num_finished)
    return missing


class SlotBuffer:
    """total: groups that the steps to come will take. spare: places that may be given away between two steps."""

    def __init__(
        self, *, groups_per_step: int, max_policy_lag: int, live_version: int, total: int, spare: int = 0
    ) -> None:
        self.groups_per_step = groups_per_step
        self.max_policy_lag = max_policy_lag
        self.live_version = live_version
        self._free = groups_per_step * (1 + max_policy_lag)
        self._running: dict[int, Ticket] = {}  # by sequence
        self._finished: dict[int, GroupRef] = {}
        self._taken: dict[int, Ticket] = {}  # in the stepper's hands, not yet trained
        self._dull: dict[int, GroupRef] = {}  # without signal: they gave their places away
        self._dull_taken: dict[int, GroupRef] = {}  # in the stepper's hands too
        self._spare = spare
        self._to_admit = total
        self._changed = asyncio.Condition()

    async def admit(self) -> int | None:
        """Wait for a free slot and charge it. Returns the live version, the ticket's start version; None at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: (self._free > 0 and self._to_admit > 0) or self._all_begun)
            if self._all_begun:
                self._spare = 0  # no caller is left to take a place
                return None
            self._free -= 1
            self._to_admit -= 1
            return self.live_version

    @property
    def _all_begun(self) -> bool:
        """As many as were asked for, and none is under way whose place another may get."""
        return self._to_admit == 0 and not (self._spare and self._running)

    def start(self, ticket: Ticket) -> None:
        """The group of an admitted ticket is on its way."""
        self._running[ticket.sequence] = ticket

    async def finish(self, group: GroupRef, *, signal: bool = True) -> None:
        """A group is done. Without signal its place goes to another group (elsewhere `dynamic_sampling`)."""
        async with self._changed:
            del self._running[group.ticket.sequence]
            if not signal and len(self._dull) < self._spare:
                self._dull[group.ticket.sequence] = group
                self._free += 1
                self._to_admit += 1
            else:
                self._finished[group.ticket.sequence] = group
            self._changed.notify_all()

    def _ready(self, version: int) -> bool:
        return len(self._finished) >= self.groups_per_step and self.count_ready(version) == self.groups_per_step

    def count_ready(self, version: int) -> int:
        """How many of the `groups_per_step` groups that `version` is trained on are there."""
        running = [ticket.start_version for ticket in self._running.values()]
        finished = [group.ticket.start_version for group in self._finished.values()]
        missing = count_missing(version, running, finished, self.groups_per_step, self.max_policy_lag)
        return max(0, self.groups_per_step - missing)

    async def take(self, version: int) -> list[GroupRef]:
        """The groups to train `version` on: the earliest started of those that have finished, in order of start.

        Among them those that gave their places away since the last step.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._ready(version) or self._starved)
            if self._starved:
                num_left = len(self._running) + len(self._finished)
                raise RunFailed(f"only {num_left} groups are left for a step of {self.groups_per_step}: some were lost")
            sequences = sorted(self._finished)[: self.groups_per_step]
            groups = {sequence: self._finished.pop(sequence) for sequence in sequences}
            self._taken = {sequence: group.ticket for sequence, group in groups.items()}
            self._dull, self._dull_taken = {}, self._dull
            groups |= self._dull_taken
            return [groups[sequence] for sequence in sorted(groups)]

    async def give_back(self, groups: Sequence[GroupRef], lost: AbstractSet[int]) -> list[Ticket]:
        """What was just taken was not trained. Those that are lost run again: returns their tickets, for that."""
        lost_tickets = [ticket for sequence, ticket in self._taken.items() if sequence in lost]
        retries = [replace(ticket, attempt=ticket.attempt + 1) for ticket in lost_tickets]
        refs = {group.ticket.sequence: group for group in groups if group.ticket.sequence in self._taken.keys() - lost}
        async with self._changed:
            self._running |= {ticket.sequence: ticket for ticket in retries}
            self._finished |= refs
            self._dull |= self._dull_taken
            self._taken, self._dull_taken = {}, {}
            self._changed.notify_all()
        return retries

    def mark_trained(self) -> None:
        """The groups taken last are in the weights: a resumed run must not start them again."""
        self._taken, self._dull_taken = {}, {}

    @property
    def _starved(self) -> bool:
        return self._to_admit == 0 and len(self._running) + len(self._finished) < self.groups_per_step

    async def release(self, count: int, *, live_version: int) -> None:
        """Free the slots of `count` trained groups: the weights trained on them are live."""
        async with self._changed:
            self._free += count
            self.live_version = live_version
            self._changed.notify_all()

    @property
    def open_tickets(self) -> list[Ticket]:
        """Started, with a place, and not yet trained, in order of start: what a resumed run starts again."""
        finished = [group.ticket for group in self._finished.values()]
        tickets = [*self._running.values(), *finished, *self._taken.values()]
        return sorted(tickets, key=lambda ticket: ticket.sequence)

    @property
    def dull(self) -> list[GroupRef]:
        """Those that gave their places away and that no step has counted: a resumed run accounts for them."""
        return [*self._dull_taken.values(), *self._dull.values()]
