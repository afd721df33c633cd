"""Indexes on disk: built by `rlsys index`, resumable at any kill, refused when they belong to something else.

    DIR/bm25/index.json, *.npy, vocab.index.json, params.index.json     made as DIR/bm25.part
    DIR/dense/vectors.json      which corpus and encoder the vectors belong to; written first
    DIR/dense/vectors.f32       one row per passage, in order; only ever appended to, so its length is the progress
    DIR/dense/index.faiss, index.json

`index.json` is written last, by an atomic rename: what has one is whole. Vectors are kept after the build: another
`faiss` key is then built without encoding again. They may be deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from envs.services.retriever import bm25, dense
from envs.services.retriever.config import RetrieverConfig
from envs.services.retriever.corpus import Corpus
from envs.services.retriever.encoder import Encoder
from rlsys.errors import BadInput

Progress = Callable[[str, int, int], None]  # what is done, how many, of how many
Facts = dict[str, Any]  # what an index belongs to: JSON

FORMAT = 1
PASSAGES_AT_ONCE = 512  # encoded together, like lengths with like, and then on disk
COMPLETE = "index.json"


def no_progress(what: str, done: int, total: int) -> None:
    """For callers with nobody to show it to."""


def bm25_facts(corpus: Corpus) -> Facts:
    return {"format": FORMAT, "corpus": asdict(corpus.fingerprint), "bm25": bm25.RULES}


def vector_facts(corpus: Corpus, encoder: Encoder) -> Facts:
    known = {"identity": encoder.identity, "dimension": encoder.dimension, "name": encoder.spec.path}
    return {"format": FORMAT, "corpus": asdict(corpus.fingerprint), "encoder": known}


def build_bm25(corpus: Corpus, directory: Path, progress: Progress = no_progress) -> None:
    """Raises BadInput for a malformed line, and for a folder that holds another corpus's index."""
    folder, part, facts = directory / "bm25", directory / "bm25.part", bm25_facts(corpus)
    with _alone(directory):
        if (folder / COMPLETE).exists():
            _check(folder / COMPLETE, facts)
            return
        if folder.exists():  # Search-R1's Lucene index has that name, too
            raise BadInput(
                f"index {directory}: its folder bm25 is not one that `rlsys index` made; give another --index"
            )
        shutil.rmtree(part, ignore_errors=True)  # a build that was killed: it takes minutes at most, so begin again
        model = bm25.build(corpus, lambda done: progress("BM25", done, len(corpus)))
        bm25.save(model, part)
        _write(part / COMPLETE, facts)
        os.replace(part, folder)


def load_bm25(corpus: Corpus, directory: Path) -> bm25.BM25Ranker:
    """Raises BadInput when there is none, or it was built from another corpus."""
    _check(directory / "bm25" / COMPLETE, bm25_facts(corpus))
    with _readable(directory, "bm25"):
        return bm25.BM25Ranker(bm25.load(directory / "bm25"))


def build_dense(corpus: Corpus, encoder: Encoder, key: str, directory: Path, progress: Progress = no_progress) -> None:
    """Goes on where a killed build stopped. Raises BadInput as `build_bm25` does."""
    dense.check_key(key, dimension=encoder.dimension, documents=len(corpus))
    folder, facts = directory / "dense", vector_facts(corpus, encoder)
    with _alone(directory):
        folder.mkdir(exist_ok=True)
        whole = folder / COMPLETE
        if whole.exists():  # and perhaps no vectors: they may be deleted
            _check(whole, facts)
        if (folder / "vectors.json").exists():
            _check(folder / "vectors.json", facts)
        else:
            (folder / "vectors.f32").unlink(missing_ok=True)  # whose they are is not known
            _write(folder / "vectors.json", facts)
        if whole.exists() and json.loads(whole.read_text()).get("faiss") == key:
            return
        encode(corpus, encoder, folder / "vectors.f32", progress)
        vectors_ND = np.memmap(folder / "vectors.f32", np.float32, "r", shape=(len(corpus), encoder.dimension))
        index = dense.build(vectors_ND, key, lambda done: progress(f"faiss {key}", done, len(corpus)))
        whole.unlink(missing_ok=True)
        dense.save(index, folder / "index.part")
        os.replace(folder / "index.part", folder / "index.faiss")
        _write(whole, facts | {"faiss": key})


def load_dense(corpus: Corpus, encoder: Encoder, config: RetrieverConfig, directory: Path) -> dense.DenseRanker:
    """Raises BadInput when there is none, or it was built from another corpus or by another encoder."""
    _check(directory / "dense" / COMPLETE, vector_facts(corpus, encoder))
    with _readable(directory, f"dense/{COMPLETE}"):  # the vectors can stay
        stored = dense.load(directory / "dense" / "index.faiss")
    return _ranker(encoder, stored, config)


def in_memory_dense(
    corpus: Corpus, encoder: Encoder, config: RetrieverConfig, progress: Progress = no_progress
) -> dense.DenseRanker:
    dense.check_key(config.faiss, dimension=encoder.dimension, documents=len(corpus))
    vectors_ND = np.concatenate([block for block in _blocks(corpus, encoder, 0, progress)])
    return _ranker(encoder, dense.build(vectors_ND, config.faiss, lambda done: None), config)


def encode(corpus: Corpus, encoder: Encoder, path: Path, progress: Progress) -> None:
    """Append the vectors that `path` lacks. A row that a kill cut short is cut off first."""
    row_bytes = encoder.dimension * np.dtype(np.float32).itemsize
    with open(path, "ab") as file:
        done = min(file.tell() // row_bytes, len(corpus))
        file.truncate(done * row_bytes)
        for block in _blocks(corpus, encoder, done, progress):
            file.write(block.tobytes())
            file.flush()
            os.fsync(file.fileno())


def _blocks(corpus: Corpus, encoder: Encoder, start: int, progress: Progress) -> Iterator[np.ndarray[Any, Any]]:
    for first in range(start, len(corpus), PASSAGES_AT_ONCE):
        rows = range(first, min(first + PASSAGES_AT_ONCE, len(corpus)))
        yield encoder.passages([corpus[row].contents for row in rows])
        progress("encode", rows.stop, len(corpus))


def _ranker(encoder: Encoder, index: Any, config: RetrieverConfig) -> dense.DenseRanker:
    prepared = dense.prepare(index, nprobe=config.nprobe, ef_search=config.ef_search, device=config.device)
    return dense.DenseRanker(encoder, prepared)


def _write(path: Path, facts: Facts) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(facts, indent=2) + "\n")
    os.replace(part, path)


def _check(path: Path, expected: Facts) -> None:
    """Raises BadInput where the stored facts are not the expected ones; more facts may be stored."""
    where = f"index {path.parent.parent} ({path.parent.name})"
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError as error:
        begun = path.parent.exists() or path.parent.with_suffix(".part").exists()
        detail = (
            "is not finished: run the same `rlsys index` again" if begun else "does not exist: `rlsys index` makes it"
        )
        raise BadInput(f"{where} {detail}") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{where}: {path.name} cannot be read ({error})") from error
    for key, value in expected.items():
        found = stored.get(key) if isinstance(stored, dict) else None
        if key == "encoder" and isinstance(found, dict) and found.get("identity") == value["identity"]:
            continue  # the same weights from another folder
        if found != value:
            what = {"corpus": _corpus_text, "encoder": _encoder_text}.get(key, str)
            raise BadInput(f"{where} was built with {key} {what(found)}, expected {what(value)}; give another --index")


@contextmanager
def _readable(directory: Path, delete: str) -> Iterator[None]:
    """Files that are missing or cut short, though `index.json` is there. `delete`: what then hinders a build."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, RuntimeError) as error:  # numpy, JSON; RuntimeError: faiss
        reason = " ".join(str(error).split())[:160]
        raise BadInput(
            f"index {directory}: damaged ({reason}); delete its {delete}, run `rlsys index` again"
        ) from error


def _corpus_text(facts: Any) -> str:
    if not isinstance(facts, dict):
        return repr(facts)
    return f"{str(facts.get('digest'))[:8]} of {facts.get('documents')} passages"


def _encoder_text(facts: Any) -> str:
    if not isinstance(facts, dict):
        return repr(facts)
    return f"{facts.get('name')} ({str(facts.get('identity'))[:8]})"


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two builds in one folder would append to the same file. The lock ends with its process."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadInput(f"index {directory}: another process is building it") from error
            yield
    except OSError as error:
        raise BadInput(f"index {directory}: cannot be written ({error.strerror})") from error
