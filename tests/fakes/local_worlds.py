"""A worker's environments without a process of their own, for tests of what lies around that process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from actors.env_server import EnvServer, answer
from actors.env_worker import CallOwner, EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.worker import RolloutWorker
from envs.services.stats import ToolStats
from rlsys.broken import EpisodeBroken


class LocalProcess:
    """Answers as `actors.env_worker.EnvWorker` does, from this process. Nobody watches it."""

    def __init__(self, spec: EnvWorkerSpec, lost: Any) -> None:
        self.plans: dict[tuple[str, str], asyncio.Future[int]] = {}
        self.stats: Mapping[str, ToolStats] = {}
        self.server = EnvServer(spec.scoring)

    def ask(self, asker: CallOwner | None, method: str, *arguments: Any) -> asyncio.Future[Any]:
        owner = () if asker is None else (asker.number,)
        return asyncio.ensure_future(self._ask(method, *owner, *arguments))

    async def _ask(self, method: str, *arguments: Any) -> Any:
        kind, value = await answer(getattr(self.server, method)(*arguments), method)
        if kind == "value":
            return value
        raise EpisodeBroken(value) if kind == "broken" else value

    def end_group(self, asker: CallOwner) -> None:
        self._last = asyncio.ensure_future(self.server.end(asker.number))

    async def fresh_stats(self) -> Mapping[str, ToolStats]:
        return await self.server.tool_stats()

    async def stop(self) -> None:
        await self.server.close()


def play_here(worker: RolloutWorker) -> None:
    worker.worlds = EnvWorkerPool(worker.worlds.spec, LocalProcess)  # type: ignore[arg-type]
