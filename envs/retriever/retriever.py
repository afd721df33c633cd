"""A retriever in this process: queries in, documents with scores out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envs.retriever import bm25, dense, index
from envs.retriever.config import RetrieverConfig
from envs.retriever.corpus import Corpus
from envs.retriever.documents import Document
from envs.retriever.encoder import Encoder, spec_of
from envs.retriever.index import Progress, no_progress
from envs.retriever.ranking import FusedRanker, Ranker

Found = tuple[tuple[Document, float], ...]  # best first


class Retriever:
    """`searchers` threads at once may search, if each has called `enter_thread`."""

    def __init__(self, corpus: Corpus, ranker: Ranker, encoder: Encoder | None = None) -> None:
        self.corpus = corpus
        self._ranker = ranker
        self._encoder = encoder
        # Two that share the cores finish more than one that has all: a forward pass of several threads waits for the
        # slowest at every layer, and while one searches, the other's answers are sent.
        self.searchers = 2 if encoder is not None and encoder.threads > 1 else 1

    def enter_thread(self) -> None:
        """Give the calling thread its share of the cores."""
        if self._encoder is not None and self.searchers > 1:
            self._encoder.limit_threads(self._encoder.threads // self.searchers)
            dense.limit_threads(self._encoder.threads // self.searchers)

    def search_batch(self, queries: Sequence[str], k: int) -> list[Found]:
        """For each query at most `k` documents with their scores, best first; a blank query finds none."""
        # Half of a surrogate pair is legal JSON, but no tokenizer takes it: it would fail the whole batch.
        ranked = self._ranker.rank([query.encode("utf-8", "replace").decode() for query in queries], k)
        return [tuple((self.corpus[row], score) for row, score in hits) for hits in ranked]


def make_retriever(config: RetrieverConfig, corpus: Corpus, progress: Progress = no_progress) -> Retriever:
    """Load the index that `config` names, or build one in memory. Raises BadInput."""
    rankers: list[Ranker] = []
    encoder: Encoder | None = None
    directory = Path(config.index) if config.index is not None else None
    if config.kind in ("bm25", "hybrid"):
        if directory is not None:
            rankers.append(index.load_bm25(corpus, directory))
        else:
            model = bm25.build(corpus, lambda done: progress("BM25", done, len(corpus)))
            rankers.append(bm25.BM25Ranker(model))
    if config.kind in ("dense", "hybrid"):
        encoder = make_encoder(config)
        if directory is not None:
            rankers.append(index.load_dense(corpus, encoder, config, directory))
        else:
            rankers.append(index.in_memory_dense(corpus, encoder, config, progress))
    return Retriever(corpus, rankers[0] if len(rankers) == 1 else FusedRanker(rankers), encoder)


def make_encoder(config: RetrieverConfig) -> Encoder:
    """Limits faiss to the config's threads, too."""
    if config.threads is not None:
        dense.limit_threads(config.threads)
    return Encoder(spec_of(config.encoder), device=config.device, dtype=config.dtype, threads=config.threads)


def build_index(config: RetrieverConfig, corpus: Corpus, progress: Progress = no_progress) -> None:
    """Write the indexes of `config.kind` into the folder `config.index`, or finish them. Raises BadInput."""
    assert config.index is not None
    directory = Path(config.index)
    if config.kind in ("bm25", "hybrid"):
        index.build_bm25(corpus, directory, progress)
    if config.kind in ("dense", "hybrid"):
        index.build_dense(corpus, make_encoder(config), config.faiss, directory, progress)
