"""Vectors in a faiss index: exact (Flat), a graph (HNSW), or inverted lists with product quantisation (IVF…,PQ…)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.services.retriever.encoder import Encoder
from envs.services.retriever.ranking import Hit
from rlsys.errors import BadInput, nearest

# Not whatever faiss's factory takes: of these it is known that they map from disk and which of them a GPU can hold.
KEY = re.compile(r"Flat|HNSW(?:16|32|64)|IVF(?P<lists>[1-9]\d{0,6}),(?:Flat|SQ8|PQ(?P<codes>[1-9]\d{0,3}))")
EXAMPLES = ("Flat", "HNSW16", "HNSW32", "HNSW64", "IVF256,Flat", "IVF4096,SQ8", "IVF4096,PQ64")
CENTROIDS = 256  # of product quantisation with 8 bits
ROWS_AT_ONCE = 65536
TRAIN_ROWS_PER_LIST = 64


def check_key(key: str, *, dimension: int, documents: int) -> None:
    """Raises BadInput for an index that faiss would not build, or only badly."""
    match = KEY.fullmatch(key)
    if match is None:
        raise BadInput(f"faiss={key!r}: expected one like {', '.join(EXAMPLES)}{nearest(key, EXAMPLES, otherwise='')}")
    lists, codes = match["lists"], match["codes"]
    if codes and dimension % int(codes):
        raise BadInput(f"faiss={key!r}: PQ{codes} does not divide the encoder's dimension {dimension}")
    needed = max(int(lists or 0), CENTROIDS if codes else 0)
    if documents < needed:
        raise BadInput(f"faiss={key!r}: needs at least {needed} passages to train on, the corpus has {documents}")


def build(vectors_ND: np.ndarray[Any, Any], key: str, progress: Callable[[int], None]) -> Any:
    """A CPU index of float32 `[N, D]`, which may be mapped from disk. Flat and HNSW hold all of it in memory."""
    import faiss

    rows, dimension = vectors_ND.shape
    check_key(key, dimension=dimension, documents=rows)
    index = faiss.index_factory(dimension, key, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        wanted = max(TRAIN_ROWS_PER_LIST * faiss.extract_index_ivf(index).nlist, 64 * CENTROIDS)
        sample = np.random.default_rng(0).choice(rows, size=min(rows, wanted), replace=False)
        index.train(np.ascontiguousarray(vectors_ND[np.sort(sample)]))
    for start in range(0, rows, ROWS_AT_ONCE):
        index.add(np.ascontiguousarray(vectors_ND[start : start + ROWS_AT_ONCE]))
        progress(min(start + ROWS_AT_ONCE, rows))
    return index


def save(index: Any, path: Path) -> None:
    import faiss

    faiss.write_index(index, str(path))


def load(path: Path) -> Any:
    """Mapped: pages are read as searches touch them, and processes share them."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)


def limit_threads(threads: int) -> None:
    """Of faiss, in searches by the calling thread and by threads that it starts."""
    import faiss

    faiss.omp_set_num_threads(threads)


def prepare(index: Any, *, nprobe: int, ef_search: int, device: str) -> Any:
    """Set how far a search looks and move the index to the GPUs where there are any that can hold its kind."""
    import faiss

    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = ef_search
        return index  # no GPU code for it
    if hasattr(index, "nprobe"):
        index.nprobe = min(nprobe, index.nlist)
    gpus = faiss.get_num_gpus() if device != "cpu" else 0
    if device == "cuda" and not gpus:
        raise BadInput("device=cuda: this faiss sees no GPU (the CPU extra is installed, or there is none)")
    if not gpus:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True
    return faiss.index_cpu_to_all_gpus(index, co=options)


class DenseRanker:
    """A blank query has no hits, whatever its vector would be near to."""

    def __init__(self, encoder: Encoder, index: Any) -> None:
        self._encoder = encoder
        self._index = index

    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        asked = [place for place, query in enumerate(queries) if query.strip()]
        found: list[list[Hit]] = [[] for _ in queries]
        if not asked:
            return found
        vectors_QD = self._encoder.queries([queries[place] for place in asked])
        scores_QK, rows_QK = self._index.search(vectors_QD, min(k, self._index.ntotal))
        for place, scores, rows in zip(asked, scores_QK.tolist(), rows_QK.tolist(), strict=True):
            # faiss fills up with row -1 where inverted lists held too few
            found[place] = [(row, score) for row, score in zip(rows, scores, strict=True) if row >= 0]
        return found
