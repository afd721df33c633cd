"""The retriever as the episodes, the driver and the demonstrations reach it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Optional
from urllib.parse import urlsplit

from envs.services.guard import Guard, GuardConfig, ToolFailed, ToolRefused
from envs.services.json_client import JsonClient
from envs.services.retriever.config import (
    KINDS,
    UNREAD,
    RankingConfig,
    RetrieverConfig,
    RetrieverServerConfig,
    WebSearchConfig,
)
from envs.services.retriever.corpus import Document, ListCorpus, contents
from envs.services.retriever.retriever import make_retriever
from envs.services.retriever.web import WebSearch
from envs.services.secrets import check_address, read_secret
from envs.services.stats import ToolStats
from rlsys.errors import BadInput, nearest, refuse_unread, require, require_bounds

if TYPE_CHECKING:
    from envs.services.retriever.retriever import Retriever
    from envs.services.retriever.service import RetrieverServer

WEB = "web"  # no server of ours: the live web, asked by every worker
RANKING = tuple(field.name for field in fields(RankingConfig))
OF_MACHINE = ("gpus", "threads")  # of vectors: BM25's sums take one thread
OF_OWN = ("corpus", *RANKING, *OF_MACHINE)  # of a server to start
MAX_TOPK = 100  # what the server allows
CHECK_DEADLINE_S = 5.0
MAX_QUERY = 1024  # characters; a longer query is cut before it is sent and remembered
MAX_BYTES = 1 << 26  # of an answer


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """A running retriever, or the corpus of one to start."""

    url: Optional[str] = None
    """Address of a running server that speaks Search-R1's protocol. null: the run starts one."""
    token_env: Optional[str] = None
    """Name of the environment variable that holds the token of the server at `url`. null: no token is sent."""
    plain_http: bool = False
    """Whether the token may be sent over plain http to another machine. Only for a private network."""
    corpus: Optional[str] = None
    """Corpus of the server to start, JSON lines of {"id", "contents"}. null for made-up questions, whose corpus is made
    up too."""


@dataclass(frozen=True, kw_only=True)
class SearchConfig(RankingConfig, ServerAddress):
    """The retriever of an environment: where passages come from, and the limits of a search."""

    kind: str = "bm25"
    """Kind of ranking of the server to start: bm25, dense or hybrid. Or web: the live web, through `web`."""
    gpus: int = 0
    """Number of GPUs of the started server for its encoder and its index (dense, hybrid), if there are any. 0: CPUs,
    which read a Flat index whole for every batch of queries: 64 GB for 21 million passages of width 768."""
    threads: Optional[int] = None
    """Number of CPU threads of the started server for its encoder and its index (dense, hybrid). It reserves as many
    CPUs of the cluster. null: 1 on a CPU, 8 on GPUs, as for an engine (`rollout.threads`)."""
    web: WebSearchConfig = field(default_factory=WebSearchConfig)
    on_failure: Literal["fail", "empty"] = "fail"
    """Treatment of a failed search. fail: the episode is a typed failure. empty: the policy sees an empty result, as in
    ICRL."""
    guard: GuardConfig = field(default_factory=GuardConfig)

    def __post_init__(self) -> None:
        kinds = (*KINDS, WEB)
        expected = f"one of {', '.join(kinds)}{nearest(str(self.kind), kinds, otherwise='')}"
        require(self.kind in kinds, "env.retriever.kind", self.kind, expected)
        self._check_web()
        require_bounds(self, "env.retriever.", "0 or more", "gpus")
        require_bounds(self, "env.retriever.", "at least 1, or null", "threads")
        is_valid = self.token_env is None or self.url is not None
        require(is_valid, "env.retriever.token_env", self.token_env, "null without retriever.url")
        key = ("env.retriever.token_env", self.token_env)
        check_address("env.retriever.url", self.url, key, plain_http=self.plain_http)

    def _check_web(self) -> None:
        web = self.kind == WEB
        is_valid = web == (self.web.key_env is not None)
        expected = "the variable that holds the key" if web else "null without retriever.kind=web"
        require(is_valid, "env.retriever.web.key_env", self.web.key_env, expected)
        if web:
            refuse_unread(self, "env.retriever.", ("url", "corpus", "index"), f"with env.retriever.kind={WEB}")

    @property
    def unread(self) -> tuple[str, ...]:
        """Keys that nothing reads, as the others are."""
        if self.kind == WEB:
            return tuple(key for key in ("url", *OF_OWN) if key != "kind")
        if self.url is not None:
            return OF_OWN
        return (*UNREAD.get(self.kind, ()), *(OF_MACHINE if self.kind == "bm25" else ()))

    @property
    def switch(self) -> tuple[str, str]:
        """The key that makes them so, and how an error says it."""
        if self.url is not None and self.kind != WEB:
            return "url", "with env.retriever.url, whose server has its own"
        return "kind", f"with env.retriever.kind={self.kind}"

    @property
    def cpus(self) -> int | None:
        """Threads of the server to start; None: as many as an engine has."""
        return 1 if self.kind == "bm25" else self.threads

    @property
    def options(self) -> RetrieverConfig:
        """Of the server to start."""
        return RetrieverConfig(**{key: getattr(self, key) for key in RANKING if key not in UNREAD.get(self.kind, ())})


class SearchTool:
    """A guarded client, for one event loop."""

    def __init__(self, config: SearchConfig, topk: int) -> None:
        self._config = config
        self._topk = topk
        self._at: tuple[str, str | None] | None = None
        self._clients: list[RetrieverClient | WebSearch] = []  # the last one is asked
        self._empty = 0
        self._guard: Guard[str, tuple[Document, ...]] = Guard("retriever", self._ask, config.guard)

    def connect(self, url: str, token: str | None) -> None:
        """Search there from now on, also in further attempts of open calls. The same place again changes nothing."""
        if self._at != (url, token):
            self._at = (url, token)
            self._clients.append(RetrieverClient(url, topk=self._topk, token=token))

    def connect_web(self) -> None:
        """Search the live web from now on. Raises BadInput without a key."""
        self._clients.append(WebSearch(self._config.web, self._topk))

    async def _ask(self, query: str) -> tuple[Document, ...]:
        return await self._clients[-1].search(query)

    async def search(self, query: str) -> tuple[Document, ...]:
        """Raises ToolFailed, unless the config takes an outage for an empty result."""
        assert self._clients, "connect before the first search"
        try:
            documents = await self._guard(query[:MAX_QUERY])
            self._empty += not documents
            return documents
        except ToolFailed:
            if self._config.on_failure == "empty":
                return ()
            raise

    def stats(self) -> Mapping[str, ToolStats]:
        return {"search": replace(self._guard.stats(), empty=self._empty)} if self._clients else {}

    async def check(self) -> None:
        """Raises BadInput when nothing listens at `retriever.url`; a server of our own is started later."""
        if self._config.url is None:
            return
        place = urlsplit(self._config.url)
        try:
            async with asyncio.timeout(CHECK_DEADLINE_S):
                port = place.port or (443 if place.scheme == "https" else 80)
                _, writer = await asyncio.open_connection(place.hostname, port)
            writer.close()
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CHECK_DEADLINE_S:g} s"
            raise BadInput(
                f"no server answers there ({reason})", key="env.retriever.url", found=self._config.url
            ) from error

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


class LocalSearch:
    """The same retriever in this process, built by the first search: what demonstrations read. Any thread."""

    def __init__(self, config: RetrieverConfig, documents: Callable[[], Sequence[Document]], topk: int) -> None:
        self._config = config
        self._documents = documents
        self._topk = topk
        self._lock = threading.Lock()
        self._retriever: Retriever | None = None
        self._found: dict[str, tuple[Document, ...]] = {}

    def __call__(self, query: str) -> tuple[Document, ...]:
        with self._lock:
            if query not in self._found:
                if self._retriever is None:
                    self._retriever = make_retriever(self._config, ListCorpus(self._documents()))
                (hits,) = self._retriever.search_batch([query], self._topk)
                self._found[query] = tuple(document for document, _ in hits)
            return self._found[query]


def check_files(config: SearchConfig) -> None:
    """Whether this machine has what the server to start reads. Raises BadInput."""
    for key, path, exists in (("corpus", config.corpus, os.path.isfile), ("index", config.index, os.path.isdir)):
        if path is None or exists(path):
            continue
        problem = "cannot be used" if os.path.exists(path) else "no such file or folder"
        command = index_command(config) if key == "index" and not os.path.exists(path) else None
        raise BadInput(problem + (f": `{command}` makes it" if command else ""), key=f"env.retriever.{key}", found=path)


def index_command(config: SearchConfig) -> str | None:
    """What builds the index that the server to start reads; None where it reads none."""
    if config.index is None or config.corpus is None or config.url is not None or config.kind == WEB:
        return None
    words = ["rlsys", "index", "--corpus", config.corpus, "--index", config.index]
    usual, unread = RankingConfig(), UNREAD.get(config.kind, ())
    words += ["--retriever", config.kind] * (config.kind != usual.kind)
    words += ["--encoder", config.encoder] * ("encoder" not in unread)
    for key in ("faiss", "k1", "b"):
        if key not in unread and getattr(config, key) != getattr(usual, key):
            words += [f"--{key}", str(getattr(config, key))]
    return shlex.join(words)


def start_server(
    config: SearchConfig, documents: Sequence[Document] | None, *, host: str, port: int, token: str
) -> RetrieverServer:
    """Serve `config.corpus`, or `documents`, from a thread of this process. Raises BadInput."""
    check_files(config)
    from envs.services.retriever.service import RetrieverServer  # the HTTP server behind it

    corpus = config.corpus or "made-up passages"
    options = RetrieverServerConfig(corpus=corpus, retriever=config.options, host=host, port=port, max_topk=MAX_TOPK)
    server = RetrieverServer(options, token=token)
    server.start(None if documents is None else ListCorpus(documents, corpus))
    return server


def token_of(variable: str | None) -> str | None:
    """The bearer token of a server that runs already. Raises BadInput where the variable does not hold one."""
    return read_secret("env.retriever.token_env", variable)


def service_name(*parts: object) -> str:
    """The same for worlds that one server can serve."""
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"retriever-{digest}"


class RetrieverClient:
    """Search-R1's /retrieve, on our server or on any other that speaks it.

    For one event loop. Retries and deadlines are the guard's.
    """

    def __init__(self, url: str, topk: int = 3, token: str | None = None) -> None:
        self._topk = topk
        self._client = JsonClient(
            url.rstrip("/").removesuffix("/retrieve") + "/retrieve",
            token,
            refused_key=ToolRefused,
            max_bytes=MAX_BYTES,
            proxy=False,
        )

    async def search(self, query: str) -> tuple[Document, ...]:
        """At most `topk` documents, best first. Raises what `JsonClient.post` does; ValueError for another protocol."""
        body = {"queries": [query], "topk": self._topk, "return_scores": True}
        return read_answer(await self._client.post("", body))[: self._topk]

    async def close(self) -> None:
        await self._client.close()


def read_answer(answer: Any) -> tuple[Document, ...]:
    """The documents of one query, in every shape that Search-R1's servers give them.

    `{"result": [[..]]}` of `{"document": {..}, "score"}` or of bare documents; a document is `{"id", "contents"}`, or
    `{"title", "text", "contents"}` without an id (BM25), or lacks `contents`. Raises ValueError for anything else.
    """
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or len(result) != 1 or not isinstance(result[0], list):
        raise ValueError('the retriever\'s answer is not {"result": [[..]]} with one list')
    return tuple(_read_document(hit) for hit in result[0])


def _read_document(hit: Any) -> Document:
    record = hit.get("document", hit) if isinstance(hit, dict) else None
    values = {key: value for key, value in record.items() if value is not None} if isinstance(record, dict) else {}
    if "contents" not in values and "text" not in values:
        raise ValueError('the retriever\'s answer holds a document without "contents"')
    text = values["contents"] if "contents" in values else contents(str(values.get("title", "")), str(values["text"]))
    return Document(id=str(values.get("id", "")), contents=str(text))
