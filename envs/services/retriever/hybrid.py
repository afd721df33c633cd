"""BM25 and an encoder, fused by reciprocal ranks (Cormack, Clarke and Büttcher 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envs.services.retriever.bm25 import BM25Ranker
from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Corpus
from envs.services.retriever.dense import DenseRanker
from envs.services.retriever.index import Progress
from envs.services.retriever.retriever import Hit, Ranker

RRF_K = 60
FUSION_DEPTH = 100  # hits of each ranker that are fused; fixed, so that the best 3 are the first 3 of the best 10


class HybridRanker(Ranker):
    """A document's score is the sum of 1 / (60 + its rank) over the two."""

    def __init__(self, words: BM25Ranker, vectors: DenseRanker) -> None:
        self._words = words
        self._vectors = vectors
        self.searchers = vectors.searchers

    @classmethod
    def open(cls, config: RetrieverConfig, corpus: Corpus, progress: Progress) -> HybridRanker:
        return cls(BM25Ranker.open(config, corpus, progress), DenseRanker.open(config, corpus, progress))

    @classmethod
    def build_index(cls, config: RetrieverConfig, corpus: Corpus, directory: Path, progress: Progress) -> None:
        BM25Ranker.build_index(config, corpus, directory, progress)
        DenseRanker.build_index(config, corpus, directory, progress)

    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        depth = max(k, FUSION_DEPTH)
        rankings = zip(self._words.rank(queries, depth), self._vectors.rank(queries, depth), strict=True)
        return [fuse(lists)[:k] for lists in rankings]

    def enter_thread(self) -> None:
        self._vectors.enter_thread()


def fuse(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    scores: dict[int, float] = {}
    for hits in lists:
        for place, (row, _) in enumerate(hits, start=1):
            scores[row] = scores.get(row, 0.0) + 1.0 / (RRF_K + place)
    return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
