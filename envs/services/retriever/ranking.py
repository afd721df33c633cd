"""Rankers turn queries into row numbers with scores; those of several rankers are fused here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Hit = tuple[int, float]  # row of the corpus, score

RRF_K = 60  # Cormack, Clarke and Büttcher 2009
FUSION_DEPTH = 100  # hits of each ranker that are fused; fixed, so that the best 3 are the first 3 of the best 10


class Ranker(Protocol):
    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first. Several threads may call."""
        ...


class FusedRanker:
    """Reciprocal rank fusion: a document's score is the sum of 1 / (60 + its rank) over the rankers."""

    def __init__(self, rankers: Sequence[Ranker]) -> None:
        self._rankers = tuple(rankers)

    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        depth = max(k, FUSION_DEPTH)
        return [fuse(lists)[:k] for lists in zip(*(r.rank(queries, depth) for r in self._rankers), strict=True)]


def fuse(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    scores: dict[int, float] = {}
    for hits in lists:
        for place, (row, _) in enumerate(hits, start=1):
            scores[row] = scores.get(row, 0.0) + 1.0 / (RRF_K + place)
    return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
