"""A kind of retriever is one class and one line of a table: a made-up one, from its name in a config to the wire."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from envs.services.retriever.config import KINDS, RetrieverConfig, RetrieverServerConfig
from envs.services.retriever.corpus import Corpus, Document, ListCorpus
from envs.services.retriever.index import Progress
from envs.services.retriever.retriever import Hit, Ranker, ranker_class
from envs.services.retriever.service import RetrieverServer
from envs.tools.search import SearchConfig
from launch.cli import run
from rlsys.errors import BadInput


class ByLength(Ranker):
    """The passages whose lengths are next to the query's."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths

    @classmethod
    def open(cls, config: RetrieverConfig, corpus: Corpus, progress: Progress) -> ByLength:
        if config.index is not None:
            return cls([int(line) for line in (Path(config.index) / "lengths").read_text().split()])
        return cls([len(corpus[row].contents) for row in range(len(corpus))])

    @classmethod
    def build_index(cls, config: RetrieverConfig, corpus: Corpus, directory: Path, progress: Progress) -> None:
        directory.mkdir()
        lengths = cls.open(RetrieverConfig(kind=config.kind), corpus, progress).lengths
        (directory / "lengths").write_text("\n".join(map(str, lengths)))

    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [
            sorted(((row, -float(abs(length - len(query)))) for row, length in enumerate(self.lengths)), key=_best)[:k]
            for query in queries
        ]


def _best(hit: Hit) -> float:
    return -hit[1]


@pytest.fixture(autouse=True)
def by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_up_kind", sys.modules[__name__])
    monkeypatch.setitem(KINDS, "by_length", "made_up_kind.ByLength")


def test_a_made_up_kind_is_served() -> None:
    corpus = ListCorpus([Document(id=str(row), contents="x" * length) for row, length in enumerate((30, 10, 20))])
    config = RetrieverServerConfig(corpus="", port=0, retriever=RetrieverConfig(kind="by_length"))
    server = RetrieverServer(config)
    url = server.start(corpus)
    try:
        documents = httpx.post(url + "/search", json={"query": "q" * 19, "top_n": 2}, timeout=60).json()
        assert [document["id"] for document in documents] == ["2", "1"]
    finally:
        assert server.stop()


def test_a_made_up_kind_is_indexed_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text('{"id": "0", "contents": "seven.."}\n{"id": "1", "contents": "four"}\n')
    assert run(["index", "--corpus", str(corpus), "--index", str(index), "--retriever", "by_length"]) == 0
    assert "by_length of 2 passages" in capsys.readouterr().out
    assert (index / "lengths").read_text() == "7\n4"


def test_a_kind_that_is_not_in_the_table_is_refused_with_those_that_are() -> None:
    for config in (RetrieverConfig, SearchConfig):
        with pytest.raises(BadInput, match=rf"retriever\.kind='tfidf': .*{', '.join(KINDS)}"):
            config(kind="tfidf")


def test_every_kind_of_the_table_is_a_ranker() -> None:
    assert all(issubclass(ranker_class(RetrieverConfig(kind=name)), Ranker) for name in KINDS)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"kind": "bm25", "encoder": "minilm", "faiss": "HNSW32"}, "retriever.encoder=e5 retriever.faiss=Flat"),
        ({"kind": "bm25", "query_tokens": 64}, "retriever.query_tokens=null"),
        ({"kind": "dense", "k1": 0.9, "b": 0.4}, "retriever.k1=1.5 retriever.b=0.75"),
    ],
)
def test_a_key_without_effect_is_refused_with_what_to_say_and_kept_from_a_server(
    keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=f"expected {re.escape(named)}$"):
        RetrieverConfig(**keys)
    inherited = SearchConfig(**keys)
    assert inherited.options == RetrieverConfig(kind=keys["kind"])
    assert set(keys) - {"kind"} <= set(inherited.unread)


def test_keys_that_a_kind_reads_are_taken() -> None:
    SearchConfig(kind="hybrid", encoder="minilm", faiss="HNSW32", query_tokens=64, k1=0.9, b=0.4, gpus=1)
    SearchConfig(kind="dense", encoder="minilm", index="here")
    SearchConfig(kind="bm25", k1=0.9, b=0.4, index="here")
