"""What an index of vectors takes, and how long a CPU searches it: arithmetic, for plans."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.services.retriever.config import RankingConfig
from envs.services.retriever.index import COMPLETE

FLOAT = 4  # bytes of a number in faiss
# A third of an A100's bfloat16, and half of what one core with AVX-512 was measured at: 80 GFLOP/s in a Flat index of
# 768 numbers with 64 queries at once, 108 in a BERT of E5-base's size (docs/results/retriever.md).
GPU_FLOPS = 100e12
THREAD_FLOPS = 40e9
PASSAGE_TOKENS = 140  # 100 words and a title
QUERY_TOKENS = 24
POSTINGS, POSTING = 60, 8  # of a passage of 100 words: its different ones without stop words; bytes of each
SAMPLE = 1 << 20  # bytes of a corpus whose lines stand for all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSize:
    dimension: int
    layers: int

    @property
    def parameters(self) -> int:
        """Of its layers, each four matrices of attention and two that are four times as wide."""
        return 12 * self.layers * self.dimension**2


ENCODERS = {
    "minilm": EncoderSize(dimension=384, layers=6),
    "e5": EncoderSize(dimension=768, layers=12),
    "intfloat/e5-small-v2": EncoderSize(dimension=384, layers=12),
    "intfloat/e5-base-v2": EncoderSize(dimension=768, layers=12),
    "intfloat/e5-large-v2": EncoderSize(dimension=1024, layers=24),
}
# As `rlsys data prepare` writes them. wiki18: the passages of Karpukhin et al. 2020.
PASSAGES = {"data/wiki18/corpus.jsonl": 21_015_324}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSize:
    """Of an index in a folder, or of one that is to be built."""

    passages: int
    encoder: EncoderSize
    faiss: str  # factory string
    built: bool = False

    @property
    def bytes(self) -> int:
        """As it is on disk and in memory."""
        return self.passages * bytes_of_passage(self.faiss, self.encoder.dimension)

    @property
    def gpu_bytes(self) -> int:
        """On GPUs vectors have half as many bytes a number, codes as many as before. A graph stays in host memory."""
        if self.faiss.startswith("HNSW"):
            return 0
        return self.bytes if ",PQ" in self.faiss or ",SQ" in self.faiss else self.bytes // 2

    @property
    def vector_bytes(self) -> int:
        """Of the vectors that a build writes next to the index."""
        return self.passages * self.encoder.dimension * FLOAT

    @property
    def encode_flops(self) -> float:
        return 2.0 * self.encoder.parameters * PASSAGE_TOKENS * self.passages

    @property
    def query_flops(self) -> float:
        """Of a query: the encoder, and a Flat index whole. Of others only a small part is read."""
        searched = 2.0 * self.passages * self.encoder.dimension if self.faiss == "Flat" else 0.0
        return 2.0 * self.encoder.parameters * QUERY_TOKENS + searched


def bytes_of_passage(faiss: str, dimension: int) -> int:
    """Flat of 768 numbers: 3,072. HNSW32 has 64 links of 4 bytes more, IVF an id of 8 bytes with its numbers or
    codes."""
    if links := re.fullmatch(r"HNSW(\d+)", faiss):
        return dimension * FLOAT + 2 * int(links[1]) * 4
    if codes := re.search(r",PQ(\d+)$", faiss):
        return int(codes[1]) + 8
    if faiss.endswith(",SQ8"):
        return dimension + 8
    return dimension * FLOAT + (8 if faiss.startswith("IVF") else 0)


def index_size(config: RankingConfig, corpus: str | None) -> IndexSize | None:
    """Of vectors; None where there are none, or the corpus or the encoder is not known here."""
    encoder = encoder_size(config.encoder)
    if config.kind == "bm25" or encoder is None:
        return None
    facts = _read_index_facts(Path(config.index) / "dense" / COMPLETE) if config.index is not None else {}
    stored = facts.get("corpus")
    counted = stored.get("documents") if isinstance(stored, dict) else None
    built, faiss = isinstance(counted, int), str(facts.get("faiss", config.faiss))
    passages = counted if isinstance(counted, int) else count_passages(corpus)
    return None if passages is None else IndexSize(passages=passages, encoder=encoder, faiss=faiss, built=built)


def encoder_size(name: str) -> EncoderSize | None:
    """By its name, or by config.json in a folder."""
    facts = _read_index_facts(Path(name) / "config.json")
    dimension, layers = facts.get("hidden_size"), facts.get("num_hidden_layers")
    if isinstance(dimension, int) and isinstance(layers, int):
        return EncoderSize(dimension=dimension, layers=layers)
    return ENCODERS.get(name)


def count_passages(corpus: str | None) -> int | None:
    """Lines of a file, by the length of its first ones; of a public corpus that is not here yet, as it is known."""
    if corpus is None:
        return None
    try:
        with open(corpus, "rb") as file:
            first = file.read(SAMPLE)
            size = file.seek(0, 2)
    except OSError:
        return PASSAGES.get(corpus)
    lines = first.count(b"\n") or 1
    return lines if len(first) == size else round(size * lines / (first.rfind(b"\n") + 1 or len(first)))


def _read_index_facts(path: Path) -> dict[str, Any]:
    """Of a file that another part checks when it is opened: here it may be anything."""
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
