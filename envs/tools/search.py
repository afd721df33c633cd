"""The retriever as the episodes, the driver and the demonstrations reach it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envs.services.guard import Guard, ToolFailed
from envs.services.retriever.config import RetrieverConfig, RetrieverServerConfig
from envs.services.retriever.documents import Document
from envs.services.secrets import read_secret
from envs.services.stats import ToolStats
from envs.worlds.search_config import MAX_TOPK, SearchConfig
from rlsys.errors import BadInput

if TYPE_CHECKING:
    from envs.services.retriever.client import RetrieverClient
    from envs.services.retriever.retriever import Retriever
    from envs.services.retriever.service import RetrieverServer

CHECK_DEADLINE_S = 5.0
MAX_QUERY = 1024  # characters; a longer query is cut before it is sent and remembered


class SearchTool:
    """A guarded client, for one event loop."""

    def __init__(self, config: SearchConfig, topk: int) -> None:
        self._config = config
        self._topk = topk
        self._at: tuple[str, str | None] | None = None
        self._clients: list[RetrieverClient] = []
        self._guard: Guard[str, tuple[Document, ...]] | None = None

    def connect(self, url: str, token: str | None) -> None:
        """Search there from now on. The same place again changes nothing."""
        from envs.services.retriever.client import RetrieverClient

        if self._at == (url, token):
            return
        client = RetrieverClient(url, topk=self._topk, token=token, timeout_s=self._config.guard.deadline_s)
        self._at = (url, token)
        self._clients.append(client)
        self._guard = Guard("retriever", client.search, self._config.guard)

    async def search(self, query: str) -> tuple[Document, ...]:
        """Raises ToolFailed, unless the config takes an outage for an empty result."""
        assert self._guard is not None, "connect before the first search"
        try:
            return await self._guard(query[:MAX_QUERY])
        except ToolFailed:
            if self._config.on_failure == "empty":
                return ()
            raise

    def stats(self) -> Mapping[str, ToolStats]:
        return {} if self._guard is None else {"search": self._guard.stats()}

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
            raise BadInput(f"env.retriever.url={self._config.url!r}: no server answers there ({reason})") from error

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
        from envs.services.retriever.corpus import ListCorpus
        from envs.services.retriever.retriever import make_retriever

        with self._lock:
            if query not in self._found:
                if self._retriever is None:
                    self._retriever = make_retriever(self._config, ListCorpus(self._documents()))
                (hits,) = self._retriever.search_batch([query], self._topk)
                self._found[query] = tuple(document for document, _ in hits)
            return self._found[query]


@dataclass(slots=True)
class StartedServer:
    url: str
    server: RetrieverServer

    def stop(self) -> None:
        self.server.stop()


def start_server(
    config: SearchConfig, documents: Sequence[Document] | None, *, host: str, port: int, token: str
) -> StartedServer:
    """Serve `config.corpus`, or `documents`, from a thread of this process. Raises BadInput."""
    from envs.services.retriever.corpus import ListCorpus
    from envs.services.retriever.service import RetrieverServer

    options = RetrieverServerConfig(
        corpus=config.corpus or "made-up passages",
        retriever=config.options,
        host=host,
        port=port,
        max_topk=MAX_TOPK,
    )
    server = RetrieverServer(options, token=token)
    return StartedServer(server.start(None if documents is None else ListCorpus(documents, options.corpus)), server)


def token_of(variable: str | None) -> str | None:
    """The bearer token of a server that runs already. Raises BadInput where the variable does not hold one."""
    return read_secret("env.retriever.token_env", variable)


def service_name(*parts: object) -> str:
    """The same for worlds that one server can serve."""
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"retriever-{digest}"
