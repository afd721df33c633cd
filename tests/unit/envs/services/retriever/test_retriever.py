"""Corpora, BM25, fusion, and what an encoder and a faiss key may be."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.services.retriever import bm25, dense, encoder, postings
from envs.services.retriever.config import RetrieverConfig, RetrieverServerConfig
from envs.services.retriever.corpus import Document, FileCorpus, ListCorpus
from envs.services.retriever.hybrid import fuse
from envs.services.retriever.retriever import Retriever, make_retriever
from rlsys.errors import BadInput
from tests.paths import DATA, needs_data
from tests.refused import refused

FRUIT = ["apple banana", "apple apple cherry", "date"]


def listed(texts: list[str]) -> ListCorpus:
    return ListCorpus([Document(id=str(row), contents=text) for row, text in enumerate(texts)])


def bm25_of(texts: list[str]) -> Retriever:
    return make_retriever(RetrieverConfig(), listed(texts))


def test_a_document_has_a_title_and_a_text() -> None:
    document = Document(id="0", contents='"Evan Morris"\nEvan Morris was a lobbyist.\nHe drank wine.')
    assert (document.title, document.text) == ("Evan Morris", "Evan Morris was a lobbyist.\nHe drank wine.")


def test_both_corpus_formats_are_read_and_blank_lines_skipped(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    lines = [
        "\ufeff" + json.dumps({"id": 7, "contents": '"A"\nfirst'}),
        "",
        "  ",
        '{"id":"b","title":"B","text":"second"}',
        '{"id":"c","title":null,"text":"third"}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    corpus = FileCorpus(str(path))
    assert [corpus[row] for row in range(len(corpus))] == [
        Document(id="7", contents='"A"\nfirst'),
        Document(id="b", contents='"B"\nsecond'),
        Document(id="c", contents='""\nthird'),
    ]


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip()), min_size=1, max_size=8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read_whatever_its_characters(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], ends: bool
) -> None:
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    written = "\r\n".join(json.dumps({"id": row, "contents": text}) for row, text in enumerate(texts))
    path.write_text(written + "\n" * ends, encoding="utf-8", newline="")
    corpus = FileCorpus(str(path))
    assert [corpus[row].contents for row in range(len(corpus))] == texts
    corpus.close()


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "not JSON"),
        ("[1]", "expected a JSON object"),
        ('{"contents": "x"}', '"id" is missing'),
        ('{"id": true, "contents": "x"}', '"id" is True'),
        ('{"id": "1", "text_": "x"}', 'no "contents"'),
        ('{"id": "1", "contents": 5}', '"contents" is a number'),
        ('{"id": "1", "contents": " "}', '"contents" is empty'),
        ('{"id": "1", "contents": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "not JSON"),
        ('{"id": "1", "text": null}', '"text" is null'),
        ('{"id": "1", "title": ["x"], "text": "y"}', '"title" is a list'),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, part: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "0", "contents": "fine"}\n\n' + line + "\n")
    with pytest.raises(BadInput, match=re.escape(f"{path} line 3: ")) as caught:
        make_retriever(RetrieverConfig(), FileCorpus(str(path)))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_corpus_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.jsonl").write_text(text)
    with refused(says="no passages"):
        FileCorpus(str(tmp_path / "c.jsonl"))
    with refused(says="cannot be read"):
        FileCorpus(str(tmp_path / "none.jsonl"))


def test_bm25_scores_are_those_computed_by_hand() -> None:
    # Lucene's: ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + 1.5 * (0.25 + 0.75 * length / mean length))
    (hits,) = bm25_of(FRUIT).search_batch(["Apple?"], 10)
    idf = math.log(1 + 1.5 / 2.5)  # 2 of 3 passages hold the word; their mean length is 2 words
    assert [document.id for document, _ in hits] == ["1", "0"]  # fewer than k: "date" has no such word
    assert [score for _, score in hits] == pytest.approx([idf * 2 / 4.0625, idf * 1 / 2.5], rel=1e-6)


@pytest.mark.parametrize("query", ["", "  ", "unheard", "the of and", "?!", "\ud800"])
def test_a_query_without_a_known_word_finds_nothing(query: str) -> None:
    assert bm25_of(FRUIT).search_batch([query, "date"], 3)[0] == ()


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_what_is_found_is_the_same_as_json(cache_bytes: int) -> None:
    corpus = listed([*FRUIT, 'apple "\\\n\u2028é😀\x00'])
    retriever = make_retriever(RetrieverConfig(), corpus, cache_bytes=cache_bytes)
    for _ in range(2):
        (hits,), (encoded,) = retriever.search_batch(["apple"], 4), retriever.search_encoded(["apple"], 4)
        assert len(hits) == 3
        assert [(json.loads(document), json.loads(score)) for document, score in encoded] == [
            ({"id": document.id, "contents": document.contents}, score) for document, score in hits
        ]


def test_bm25_finds_each_passage_by_its_own_word() -> None:
    # FlashRAG #103: an index built with ids that do not match its vocabulary gives every query the same passages.
    texts = [f"word{row} shared" for row in range(200)]
    results = bm25_of(texts).search_batch([f"word{row}" for row in range(200)], 1)
    assert [hits[0][0].id for hits in results] == [str(row) for row in range(200)]


@pytest.mark.parametrize(
    ("keys", "scores"),
    [
        # ln(1 + 0.5 / 2.5) = 0.18232, times tf / (tf + k1 (1 - b + b length / 2.5)): lengths 3 and 2, tf 3 and 1
        ({}, [0.18232 * 3 / (3 + 1.5 * (0.25 + 0.75 * 1.2)), 0.18232 / (1 + 1.5 * (0.25 + 0.75 * 0.8))]),
        ({"k1": 0.9, "b": 0.4}, [0.18232 * 3 / 3.972, 0.18232 / 1.828]),
    ],
)
def test_bm25_has_two_constants(keys: dict[str, float], scores: list[float]) -> None:
    retriever = make_retriever(RetrieverConfig(**keys), listed(["apple apple apple", "apple banana"]))  # type: ignore[arg-type]
    (hits,) = retriever.search_batch(["apple"], 2)
    assert [score for _, score in hits] == pytest.approx(scores, abs=1e-5)
    with refused("retriever.b", found=1.5):
        RetrieverConfig(b=1.5)


def test_words_are_folded_and_stop_words_dropped() -> None:
    assert bm25.tokenize("the 東京都 of 2020年 ﾗｰﾒﾝ") == ["東京", "京都", "2020", "年", "ラー", "ーメ", "メン"]
    assert bm25.tokenize("The Straße of ＡＢＣ, x2 in café!") == ["strasse", "abc", "x2", "café"]


def test_a_corpus_without_words_is_refused() -> None:
    with refused(says="no words"):
        bm25_of(["!!!", "..."])


WORDS = st.lists(st.sampled_from(["apple", "banana", "cherry", "date", "elder", "unheard"]), max_size=6)


@given(st.lists(WORDS, max_size=9), st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_bm25_gives_the_best_of_the_library_s_scores(texts: list[list[str]], queries: list[list[str]], k: int) -> None:
    corpus = listed(["apple banana cherry date elder", *map(" ".join, texts)])
    model = bm25.build(corpus, lambda done: None, RetrieverConfig())
    for query, hits in zip(
        queries, bm25.BM25Ranker(model).rank([" ".join(query) for query in queries], k), strict=True
    ):
        scores = model.get_scores(query) if set(query) & set(model.vocab_dict) else np.zeros(0)
        positive = [(row, float(score)) for row, score in enumerate(scores) if score > 0]
        assert hits == sorted(positive, key=lambda hit: (-hit[1], hit[0]))[:k]


def test_postings_that_point_out_of_the_corpus_are_an_error() -> None:
    with pytest.raises(IndexError):
        postings.rank(*(np.array(ids) for ids in ([0], [1], [0, 1])), np.array([9], np.int32), np.ones(1, "f"), 2, 1)


@given(st.text(max_size=200), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_query(query: str, k: int) -> None:
    (hits,) = SMALL.search_batch([query], k)
    assert len(hits) <= k


SMALL = bm25_of(FRUIT)


def test_fusion_adds_reciprocal_ranks() -> None:
    # 5: 1/61 + 1/62; 7: 1/62 + 1/61, equal, so the lower row first; 9: 1/63
    fused = fuse([[(5, 9.0), (7, 8.0)], [(7, 0.9), (5, 0.5), (9, 0.1)]])
    assert [row for row, _ in fused] == [5, 7, 9]
    assert [score for _, score in fused] == pytest.approx([1 / 61 + 1 / 62, 1 / 61 + 1 / 62, 1 / 63])


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_batches_hold_every_row_once_within_the_budget(lengths: list[int], tokens: int) -> None:
    groups = encoder.batches_by_length(lengths, tokens)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= tokens


def test_a_forward_pass_has_one_of_few_shapes() -> None:
    assert [encoder.padded_rows(rows) for rows in (1, 2, 3, 4, 5, 8, 9, 16, 17)] == [1, 2, 4, 4, 8, 8, 16, 16, 24]


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("flat", "did you mean 'Flat'"),
        ("HNSW33", "did you mean 'HNSW32'"),
        ("IVF0,Flat", "expected one like"),
        ("IVF256,PQ7", "does not divide"),
        ("IVF4096,Flat", "at least 4096 passages"),
        ("IVF16,PQ8", "at least 256 passages"),
        ("Flat\n", "expected one like"),
    ],
)
def test_an_index_that_faiss_could_not_build_is_refused(key: str, part: str) -> None:
    with pytest.raises(BadInput, match=part):
        dense.check_key(key, dimension=384, documents=100 if "IVF16" in key else 1000)


@pytest.mark.parametrize("key", ["Flat", "HNSW16", "IVF4,Flat", "IVF4,SQ8"])
def test_every_kind_of_index_finds_a_vector_and_maps_from_disk(tmp_path: Path, key: str) -> None:
    dense.limit_threads(1)  # on a busy machine its threads wait for each other for seconds
    vectors = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    done: list[int] = []
    dense.save(dense.build(vectors, key, done.append), tmp_path / "x.faiss")
    index = dense.prepare(dense.load(tmp_path / "x.faiss"), nprobe=64, ef_search=64, device="cpu")
    _, rows = index.search(vectors[:50], 5)
    assert done[-1] == 300
    assert sum(row in hits for row, hits in enumerate(rows)) >= 50


@pytest.mark.parametrize(
    "wrong",
    [
        {"topk": 0},
        {"topk": 200},
        {"port": 70000},
        {"max_queries": 5000},
        {"deadline_s": 0},
        {"max_batch": 0},
        {"max_documents": 99},
    ],
)
def test_a_server_config_out_of_bounds_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        RetrieverServerConfig(corpus="c.jsonl", **wrong)


@needs_data
def test_bm25_recall_on_hotpotqa() -> None:
    records = [json.loads(line) for line in (DATA / "hotpotqa_distractor_50.jsonl").read_text().splitlines()]
    paragraphs: dict[str, str] = {}
    for record in records:
        for title, sentences in zip(record["context"]["title"], record["context"]["sentences"], strict=True):
            paragraphs.setdefault(title, f'"{title}"\n{"".join(sentences)}')
    corpus = ListCorpus([Document(id=title, contents=text) for title, text in paragraphs.items()])
    results = make_retriever(RetrieverConfig(), corpus).search_batch([record["question"] for record in records], 10)
    gold = [set(record["supporting_facts"]["title"]) for record in records]
    recall = [len(g & {d.id for d, _ in hits}) / len(g) for g, hits in zip(gold, results, strict=True)]
    assert sum(recall) / len(recall) == pytest.approx(0.90)
