"""Vectors in a faiss index: exact (Flat), a graph (HNSW), or inverted lists with product quantisation (IVF…,PQ…)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Corpus
from envs.services.retriever.encoder import Encoder
from envs.services.retriever.encoder_spec import read_spec
from envs.services.retriever.index import (
    COMPLETE,
    Facts,
    Progress,
    build_lock,
    check_facts,
    damage_as_bad_input,
    index_facts,
    write_facts,
)
from envs.services.retriever.retriever import Hit, Ranker
from rlsys.errors import BadInput, nearest

# Not whatever faiss's factory takes: of these it is known that they map from disk and which of them a GPU can hold.
KEY = re.compile(r"Flat|HNSW(?:16|32|64)|IVF(?P<lists>[1-9]\d{0,6}),(?:Flat|SQ8|PQ(?P<codes>[1-9]\d{0,3}))")
EXAMPLES = ("Flat", "HNSW16", "HNSW32", "HNSW64", "IVF256,Flat", "IVF4096,SQ8", "IVF4096,PQ64")
CENTROIDS = 256  # of product quantisation with 8 bits
ROWS_AT_ONCE = 65536
PASSAGES_AT_ONCE = 512  # encoded together, like lengths with like, and then on disk
TRAIN_ROWS_PER_LIST = 64
# Queries times their numbers from which faiss multiplies matrices. With its own 128,000 each query of a batch of 64
# reads all vectors by itself: `python benchmarks/flat.py`, docs/results/retriever.md.
BLAS_FROM = 1536


def check_key(key: str, *, dimension: int, documents: int) -> None:
    """Raises BadInput for an index that faiss would not build, or only badly."""
    match = KEY.fullmatch(key)
    if match is None:
        raise BadInput(
            key="faiss", found=key, expected=f"one like {', '.join(EXAMPLES)}{nearest(key, EXAMPLES, otherwise='')}"
        )
    lists, codes = match["lists"], match["codes"]
    if codes and dimension % int(codes):
        raise BadInput(f"PQ{codes} does not divide the encoder's dimension {dimension}", key="faiss", found=key)
    min_documents = max(int(lists or 0), CENTROIDS if codes else 0)
    if documents < min_documents:
        raise BadInput(
            f"needs at least {min_documents} passages to train on, the corpus has {documents}", key="faiss", found=key
        )


def build(vectors_ND: np.ndarray[Any, Any], key: str, progress: Callable[[int], None]) -> Any:
    """A CPU index of float32 `[N, D]`, which may be mapped from disk. Flat and HNSW hold all of it in memory."""
    import faiss

    rows, dimension = vectors_ND.shape
    check_key(key, dimension=dimension, documents=rows)
    index = faiss.index_factory(dimension, key, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        sample_size = max(TRAIN_ROWS_PER_LIST * faiss.extract_index_ivf(index).nlist, 64 * CENTROIDS)
        sample = np.random.default_rng(0).choice(rows, size=min(rows, sample_size), replace=False)
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

    faiss.cvar.distance_compute_blas_threshold = min(BLAS_FROM, faiss.cvar.distance_compute_blas_threshold)
    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = ef_search
        return index  # no GPU code for it
    if hasattr(index, "nprobe"):
        index.nprobe = min(nprobe, index.nlist)
    gpus = faiss.get_num_gpus() if device != "cpu" else 0
    if device == "cuda" and not gpus:
        raise BadInput(
            "this faiss sees no GPU (the CPU extra is installed, or there is none)", key="device", found="cuda"
        )
    if not gpus:
        return index
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True
    return faiss.index_cpu_to_all_gpus(index, co=options)


class DenseRanker(Ranker):
    """A blank query has no hits, whatever its vector would be near to."""

    def __init__(self, encoder: Encoder, index: Any) -> None:
        self._encoder = encoder
        self._index = index
        # Two that share the cores finish more than one that has all: a forward pass of several threads waits for the
        # slowest at every layer, and while one searches, the other's answers are sent.
        self.searchers = 2 if encoder.threads > 1 else 1

    @classmethod
    def open(cls, config: RetrieverConfig, corpus: Corpus, progress: Progress) -> DenseRanker:
        encoder = make_encoder(config)
        if config.index is None:
            check_key(config.faiss, dimension=encoder.dimension, documents=len(corpus))
            vectors_ND = np.concatenate(list(_encode_blocks(corpus, encoder, 0, progress)))
            index = build(vectors_ND, config.faiss, lambda num_done: None)
        else:
            directory = Path(config.index)
            check_facts(directory / "dense" / COMPLETE, _expected_facts(corpus, encoder))
            with damage_as_bad_input(directory, f"dense/{COMPLETE}"):  # the vectors can stay
                index = load(directory / "dense" / "index.faiss")
        return cls(encoder, prepare(index, nprobe=config.nprobe, ef_search=config.ef_search, device=config.device))

    @classmethod
    def build_index(cls, config: RetrieverConfig, corpus: Corpus, directory: Path, progress: Progress) -> None:
        """Build the index; a build that was killed continues where it stopped."""
        encoder, key = make_encoder(config), config.faiss
        check_key(key, dimension=encoder.dimension, documents=len(corpus))
        folder, facts = directory / "dense", _expected_facts(corpus, encoder)
        with build_lock(directory):
            folder.mkdir(exist_ok=True)
            marker = folder / COMPLETE
            if marker.exists():  # and perhaps no vectors: they may be deleted
                check_facts(marker, facts)
            if (folder / "vectors.json").exists():
                check_facts(folder / "vectors.json", facts)
            else:
                (folder / "vectors.f32").unlink(missing_ok=True)  # whose they are is not known
                write_facts(folder / "vectors.json", facts)
            if marker.exists() and json.loads(marker.read_text()).get("faiss") == key:
                return
            encode_corpus(corpus, encoder, folder / "vectors.f32", progress)
            vectors_ND = np.memmap(folder / "vectors.f32", np.float32, "r", shape=(len(corpus), encoder.dimension))
            index = build(vectors_ND, key, lambda num_done: progress(f"faiss {key}", num_done, len(corpus)))
            marker.unlink(missing_ok=True)
            save(index, folder / "index.part")
            os.replace(folder / "index.part", folder / "index.faiss")
            write_facts(marker, facts | {"faiss": key})

    def enter_thread(self) -> None:
        """Give the calling thread its share of the cores."""
        if self.searchers > 1:
            self._encoder.limit_threads(self._encoder.threads // self.searchers)
            limit_threads(self._encoder.threads // self.searchers)

    def rank(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        places = [place for place, query in enumerate(queries) if query.strip()]
        hits: list[list[Hit]] = [[] for _ in queries]
        if not places:
            return hits
        vectors_QD = self._encoder.queries([queries[place] for place in places])
        scores_QK, rows_QK = self._index.search(vectors_QD, min(k, self._index.ntotal))
        for place, scores, rows in zip(places, scores_QK.tolist(), rows_QK.tolist(), strict=True):
            # faiss fills up with row -1 where inverted lists held too few
            hits[place] = [(row, score) for row, score in zip(rows, scores, strict=True) if row >= 0]
        return hits


def make_encoder(config: RetrieverConfig) -> Encoder:
    """Limits faiss to the config's threads, too."""
    if config.threads is not None:
        limit_threads(config.threads)
    return Encoder(
        read_spec(config.encoder),
        device=config.device,
        dtype=config.dtype,
        threads=config.threads,
        query_tokens=config.query_tokens,
    )


def encode_corpus(corpus: Corpus, encoder: Encoder, path: Path, progress: Progress) -> None:
    """Append the vectors that `path` lacks. A row that a kill cut short is cut off first."""
    row_bytes = encoder.dimension * np.dtype(np.float32).itemsize
    with open(path, "ab") as file:
        num_done = min(file.tell() // row_bytes, len(corpus))
        file.truncate(num_done * row_bytes)
        for block in _encode_blocks(corpus, encoder, num_done, progress):
            file.write(block.tobytes())
            file.flush()
            os.fsync(file.fileno())


def _encode_blocks(corpus: Corpus, encoder: Encoder, start: int, progress: Progress) -> Iterator[np.ndarray[Any, Any]]:
    for first in range(start, len(corpus), PASSAGES_AT_ONCE):
        rows = range(first, min(first + PASSAGES_AT_ONCE, len(corpus)))
        yield encoder.passages([corpus[row].contents for row in rows])
        progress("encode", rows.stop, len(corpus))


def _expected_facts(corpus: Corpus, encoder: Encoder) -> Facts:
    encoder_facts = {"identity": encoder.identity, "dimension": encoder.dimension, "name": encoder.spec.path}
    return index_facts(corpus, encoder=encoder_facts)
