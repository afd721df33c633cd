"""A retriever in this process: queries in, documents with scores out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cachetools import LRUCache
from pydantic_core import to_json

from envs.services.retriever import bm25, dense, index
from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Corpus
from envs.services.retriever.documents import Document
from envs.services.retriever.encoder import Encoder, spec_of
from envs.services.retriever.index import Progress, no_progress
from envs.services.retriever.ranking import FusedRanker, Hit, Ranker

Found = tuple[tuple[Document, float], ...]  # best first
Encoded = tuple[tuple[bytes, bytes], ...]  # a document `{"id", "contents"}` and its score as JSON, best first

PASSAGE_BYTES = 250  # of an entry in the cache, besides the passage


class Retriever:
    """`searchers` threads at once may search, if each has called `enter_thread`."""

    def __init__(self, corpus: Corpus, ranker: Ranker, encoder: Encoder | None = None, *, cache_bytes: int = 0) -> None:
        """`cache_bytes` of passages are kept encoded."""
        self.corpus = corpus
        self._passages: LRUCache[int, bytes] = LRUCache(cache_bytes, getsizeof=lambda kept: PASSAGE_BYTES + len(kept))
        self._lock = threading.Lock()  # of the passages
        self._ranker = ranker
        self._encoder = encoder
        # Two that share the cores finish more than one that has all: a forward pass of several threads waits for the
        # slowest at every layer, and while one searches, the other's answers are sent.
        self.may_be_brief = encoder is None  # less work than handing it to a thread
        self.searchers = 2 if encoder is not None and encoder.threads > 1 else 1

    def enter_thread(self) -> None:
        """Give the calling thread its share of the cores."""
        if self._encoder is not None and self.searchers > 1:
            self._encoder.limit_threads(self._encoder.threads // self.searchers)
            dense.limit_threads(self._encoder.threads // self.searchers)

    def search_batch(self, queries: Sequence[str], k: int) -> list[Found]:
        """For each query at most `k` documents with their scores, best first; a blank query finds none."""
        return [tuple((self.corpus[row], score) for row, score in hits) for hits in self._rank(queries, k)]

    def search_encoded(self, queries: Sequence[str], k: int) -> list[Encoded]:
        """The same as JSON."""
        ranked = self._rank(queries, k)
        return [tuple([(self._passage(row), to_json(score)) for row, score in hits]) for hits in ranked]

    def _rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        # Half of a surrogate pair is legal JSON, but no tokenizer takes it: it would fail the whole batch.
        return self._ranker.rank([query.encode("utf-8", "replace").decode() for query in queries], k)

    def _passage(self, row: int) -> bytes:
        with self._lock:
            passage: bytes | None = self._passages.get(row)
        if passage is None:
            document = self.corpus[row]
            passage = to_json({"id": document.id, "contents": document.contents})
            with self._lock, suppress(ValueError):  # it is larger than the whole cache
                self._passages[row] = passage
        return passage


def make_retriever(
    config: RetrieverConfig, corpus: Corpus, progress: Progress = no_progress, *, cache_bytes: int = 0
) -> Retriever:
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
    ranker = rankers[0] if len(rankers) == 1 else FusedRanker(rankers)
    return Retriever(corpus, ranker, encoder, cache_bytes=cache_bytes)


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
