"""What a kind of retriever is: a class that turns queries into row numbers with scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from envs.services.retriever.config import KINDS, RetrieverConfig
from envs.services.retriever.corpus import Corpus
from envs.services.retriever.index import Progress
from rlsys.choices import load

Hit = tuple[int, float]  # row of the corpus, score


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


def kind_of(config: RetrieverConfig) -> type[Ranker]:
    found: type[Ranker] = load(KINDS[config.kind])
    return found
