"""faiss itself: what product quantisation finds again."""

from pathlib import Path

import numpy as np

from envs.services.retriever import dense


def test_product_quantisation_finds_most_neighbours(tmp_path: Path) -> None:
    dense.limit_threads(1)  # on a busy machine its threads wait for each other for seconds
    vectors = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    dense.save(dense.build(vectors, "IVF4,PQ2", lambda count: None), tmp_path / "x.faiss")
    index = dense.prepare(dense.load(tmp_path / "x.faiss"), nprobe=64, ef_search=64, device="cpu")
    _, rows = index.search(vectors[:100], 5)
    assert sum(row in neighbours for row, neighbours in enumerate(rows)) >= 50
