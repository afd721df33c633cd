"""What an index takes and how long it is searched. Sizes are by hand, or those of an index that faiss has built."""

from __future__ import annotations

import json
from pathlib import Path

import faiss
import numpy as np
import pytest

from envs.services.retriever import dense
from envs.services.retriever.config import RankingConfig
from envs.services.retriever.sizes import IndexSize, bytes_of_passage, count_passages, encoder_size, index_size


@pytest.mark.parametrize("key", ["Flat", "HNSW32", "IVF16,Flat", "IVF16,SQ8"])
def test_an_index_has_as_many_bytes_as_faiss_writes(key: str) -> None:
    rows, dimension = 4000, 64
    vectors = np.random.default_rng(0).random((rows, dimension), np.float32)
    index = faiss.index_factory(dimension, key, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:1024])
    index.add(vectors)
    written = len(faiss.serialize_index(index))
    assert (
        0.8 < written / (rows * bytes_of_passage(key, dimension)) < 1.3
    )  # with its centroids, and links of other levels


def test_product_quantisation_has_a_byte_for_each_code_and_an_id() -> None:
    assert bytes_of_passage("IVF4096,PQ64", 768) == 64 + 8


def test_wikipedia_with_e5() -> None:
    size = index_size(RankingConfig(kind="dense", index="indexes/none"), "data/wiki18/corpus.jsonl")
    assert size is not None and not size.built
    assert size.bytes == 21_015_324 * 768 * 4 and size.gpu_bytes == size.bytes // 2
    assert size.encoder.parameters == 12 * 12 * 768**2  # 85 million
    assert size.query_flops == 2 * 21_015_324 * 768 + 2 * size.encoder.parameters * 24
    graph = IndexSize(passages=21_015_324, encoder=size.encoder, faiss="HNSW32")
    assert (
        graph.gpu_bytes == 0 and graph.query_flops == 2 * size.encoder.parameters * 24
    )  # it reads little of the graph


def test_words_have_no_vectors_and_an_unknown_encoder_or_corpus_no_size(tmp_path: Path) -> None:
    wiki = "data/wiki18/corpus.jsonl"
    assert index_size(RankingConfig(), wiki) is None
    assert index_size(RankingConfig(kind="dense", encoder="someone/theirs"), wiki) is None
    assert index_size(RankingConfig(kind="dense"), str(tmp_path / "none.jsonl")) is None


def test_an_index_that_is_there_says_its_own_numbers(tmp_path: Path) -> None:
    (tmp_path / "dense").mkdir()
    (tmp_path / "dense" / "index.json").write_text(json.dumps({"corpus": {"documents": 7}, "faiss": "HNSW16"}))
    size = index_size(RankingConfig(kind="dense", encoder="minilm", index=str(tmp_path)), None)
    assert size is not None and size.built
    assert (size.passages, size.faiss, size.bytes) == (7, "HNSW16", 7 * (384 * 4 + 16 * 2 * 4))
    (tmp_path / "dense" / "index.json").write_text("[")
    assert index_size(RankingConfig(kind="dense", index=str(tmp_path)), None) is None


def test_lines_of_a_corpus_are_counted_by_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"id": "0"}\n' * 5)
    assert count_passages(str(file)) == 5
    file.write_bytes((b"x" * 99 + b"\n") * 30_000)  # 3 MB, of which 1 MiB is read
    assert count_passages(str(file)) == 30_000


def test_an_encoder_in_a_folder_says_its_sizes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 32, "num_hidden_layers": 2}')
    size = encoder_size(str(tmp_path))
    assert size is not None and (size.dimension, size.layers) == (32, 2)


def test_a_batch_in_a_flat_index_is_a_product_of_matrices() -> None:
    """faiss's own threshold of 128,000 numbers leaves a batch of 64 queries of 768 numbers below it."""
    flat = faiss.IndexFlatIP(8)
    dense.prepare(flat, nprobe=1, ef_search=1, device="cpu")
    assert faiss.cvar.distance_compute_blas_threshold <= 2 * 768
