"""A retriever server's life: load, warm up, then the port answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from envs.services.http import HttpService, serve_until_signal
from envs.services.retriever.config import RetrieverServerConfig
from envs.services.retriever.corpus import Corpus, FileCorpus
from envs.services.retriever.index import Progress, no_progress
from envs.services.retriever.retriever import Retriever, make_retriever
from envs.services.retriever.server import RetrieverApp, opened
from envs.services.secrets import read_secret

START_S = 30.0  # from a loaded index to an open port
WARM_UP = "a query before the first query"


class RetrieverServer:
    """Runs in a thread of this process: `start() -> url`, `stop()`. Single use.

    The port is taken at once, before a corpus is read or an encoder loaded; `start` raises BadInput for whatever of the
    config cannot be used.
    """

    def __init__(
        self, config: RetrieverServerConfig, progress: Progress = no_progress, *, token: str | None = None
    ) -> None:
        """`token` stands in for the one that `config.token_env` names."""
        self._config = config
        self._progress = progress
        self._token = read_secret("--token-env", config.token_env) if token is None else token
        self._retriever: Retriever | None = None
        self._hangs = False  # a search: its thread would keep the process
        self._service = HttpService(
            "retriever server",
            self._opened,
            host=config.host,
            port=config.port,
            arrive_s=config.deadline_s,
            stop_s=config.deadline_s,
        )

    @property
    def url(self) -> str:
        return self._service.url

    def start(self, corpus: Corpus | None = None) -> str:
        """Load, warm up, listen; returns the url. `corpus` stands in for the config's file."""
        config = self._config
        try:
            self._retriever = make_retriever(
                config.retriever,
                corpus or FileCorpus(config.corpus),
                self._progress,
                cache_bytes=config.cache_mb << 20,
            )
            self._retriever.search_encoded([WARM_UP], config.topk)
            return self._service.start(START_S)
        except BaseException:
            self.stop()
            raise

    def alive(self) -> bool:
        return self._service.alive()

    def stop(self) -> bool:
        """Refuse new requests, answer those under way, end the thread. False where a search hangs and it cannot end."""
        return self._service.stop() and not self._hangs

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[RetrieverApp]:
        assert self._retriever is not None, "loaded before the thread starts"
        async with opened(self._retriever, self._config, self._token) as app:
            yield app
        self._hangs = app.hangs


def serve(
    config: RetrieverServerConfig, say: Callable[[str], None] = print, progress: Progress = no_progress
) -> NoReturn:
    """Serve until SIGINT or SIGTERM; then answer what is under way and exit with 130 or 143. Raises BadInput."""
    server = RetrieverServer(config, progress)

    def started(url: str) -> None:
        say(f"retriever ({config.retriever.kind}) on {url}: POST /retrieve /search /batch_search, GET /health /metrics")

    serve_until_signal("retriever server", server, server.start, started)
