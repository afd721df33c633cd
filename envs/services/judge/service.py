"""A judge as an HTTP service of this process: any model behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from envs.services.app import App
from envs.services.http import HttpService
from envs.services.judge.config import JudgeConfig
from envs.services.judge.endpoint import Chat
from envs.services.judge.judge import Judge
from envs.services.judge.server import JudgeServerConfig, make_app


def judge_service(
    open_chat: Callable[[], Awaitable[Chat]],
    judge: JudgeConfig,
    server: JudgeServerConfig,
    *,
    host: str,
    port: int,
    token: str | None,
) -> HttpService:
    """Not started yet. `open_chat` is awaited in the service's own event loop. Raises BadInput for a port in use."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[App]:
        core = Judge(await open_chat(), judge)
        try:
            yield make_app(core, server, token)
        finally:
            await core.close()

    stop_s = min(judge.outage_s, 30.0)
    return HttpService("judge", opened, host=host, port=port, arrive_s=server.body_deadline_s, stop_s=stop_s)
