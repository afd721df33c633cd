"""A retriever in this process: queries in, documents with scores out; and what a kind of retriever is."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cachetools import LRUCache
from pydantic_core import to_json

from envs.services.retriever.config import KINDS, RetrieverConfig
from envs.services.retriever.corpus import Corpus, Document
from envs.services.retriever.index import Progress, no_progress
from rlsys.choices import load

Hit = tuple[int, float]  # row of the corpus, score
Found = tuple[tuple[Document, float], ...]  # best first
Encoded = tuple[tuple[bytes, bytes], ...]  # a document `{"id", "contents"}` and its score as JSON, best first

PASSAGE_BYTES = 250  # of an entry in the cache, in addition to the passage


class Ranker(ABC):
    """One kind. A new one is a file with such a class and a line in `envs.services.retriever.config.KINDS`."""

    searchers = 1  # so many threads at once may rank, if each has called `enter_thread`
    may_be_brief = False  # whether ranking may be less work than handing it to a thread

    @classmethod
    @abstractmethod
    def open(cls, config: RetrieverConfig, corpus: Corpus, progress: Progress) -> Ranker:
        """From the index in the folder `config.index`, or without one from `corpus`. Raises BadInput."""

    @classmethod
    @abstractmethod
    def build_index(cls, config: RetrieverConfig, corpus: Corpus, directory: Path, progress: Progress) -> None:
        """Write the index, or finish it. Raises BadInput: a malformed line, or another corpus's index is there."""

    @abstractmethod
    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first."""

    def enter_thread(self) -> None:  # noqa: B027  most kinds need nothing
        """Before the first ranking of a thread among `searchers`."""


def ranker_class(config: RetrieverConfig) -> type[Ranker]:
    ranker: type[Ranker] = load(KINDS[config.kind])
    return ranker


class Retriever:
    """`searchers` threads at once may search, if each has called `enter_thread`."""

    def __init__(self, corpus: Corpus, ranker: Ranker, *, cache_bytes: int = 0) -> None:
        """`cache_bytes` of passages are kept encoded."""
        self.corpus = corpus
        self._passages: LRUCache[int, bytes] = LRUCache(cache_bytes, getsizeof=lambda entry: PASSAGE_BYTES + len(entry))
        self._lock = threading.Lock()  # of the passages
        self._ranker = ranker
        self.searchers = ranker.searchers
        self.may_be_brief = ranker.may_be_brief
        self.enter_thread = ranker.enter_thread

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
    return Retriever(corpus, ranker_class(config).open(config, corpus, progress), cache_bytes=cache_bytes)


def build_index(config: RetrieverConfig, corpus: Corpus, progress: Progress = no_progress) -> None:
    """Write the indexes of `config.kind` into the folder `config.index`, or finish them. Raises BadInput."""
    assert config.index is not None
    ranker_class(config).build_index(config, corpus, Path(config.index), progress)
