"""Who sends which part of a version to whom: what a node has got it passes on, so that no sender serves all.

Pure: from what is where, it computes what to do next. With 120 parts, eight of them under way to and from each node at
a time, 24 receivers take 19 rounds where one takes 15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

TRIES = 2  # of one part from one source


class Relay:
    def __init__(self, owners: Sequence[str], uploads: int) -> None:
        """owners: of each part, the node that it begins on. uploads: from one node at a time."""
        self._holders = [{owner} for owner in owners]
        self._coming: list[dict[str, str]] = [{} for _ in owners]  # by receiver: from where
        self._uploads = uploads
        self._sending: Counter[str] = Counter()
        self._failures: Counter[tuple[int, str]] = Counter()

    def lacking(self, node: str) -> list[int]:
        """The parts that are not there, those under way included."""
        return [part for part, holders in enumerate(self._holders) if node not in holders]

    def list_orphaned(self, node: str) -> list[int]:
        """Of those, the ones that no node has, and that will not come."""
        lacking = self.lacking(node)
        return [part for part in lacking if not self._holders[part] and not self._coming[part]]

    def begin(self, node: str) -> tuple[int, str] | None:
        """(part, source) that a node should fetch now: the rarest part, from who sends least. None: not now."""
        best: tuple[tuple[int, int], int, str] | None = None
        for part in self.lacking(node):
            # A node sends a part to one receiver at a time: that receiver then serves the others.
            free = self._holders[part].difference(self._coming[part].values())
            sources = [holder for holder in free if self._sending[holder] < self._uploads]
            if node in self._coming[part] or not sources:
                continue
            source = min(sources, key=lambda holder: (self._sending[holder], holder))
            rank = (len(self._holders[part]) + len(self._coming[part]), self._sending[source])
            if best is None or rank < best[0]:
                best = rank, part, source
        if best is None:
            return None
        _, part, source = best
        self._coming[part][node] = source
        self._sending[source] += 1
        return part, source

    def end(self, node: str, part: int, *, arrived: bool) -> None:
        """What `begin` said is over."""
        source = self._coming[part].pop(node)
        self._sending[source] -= 1
        if arrived:
            self._holders[part].add(node)

    def mark_failed(self, part: int, source: str) -> None:
        """It did not send the part. It may be asked again once `mark_found` says that it has it, and not for ever."""
        self._failures[part, source] += 1
        self._holders[part].discard(source)

    def mark_found(self, node: str, parts: Iterable[int]) -> None:
        """What a node turns out to have, of all parts."""
        has = {part for part in parts if self._failures[part, node] < TRIES}
        for part, holders in enumerate(self._holders):
            (holders.add if part in has else holders.discard)(node)
