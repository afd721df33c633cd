"""The address at which agents ask the policy, on loopback.

An agent's API key says which episode it belongs to. The server has a thread of its own, so that what agents send is
read apart from the episodes; what it has read is handed to the session in the loop of the environments.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from envs.agents.app import MAX_BODY, make_chat_app
from envs.agents.chat import ChatAnswer, ChatRequest, Refused
from envs.agents.session import Session
from envs.services.http import HttpService


class AgentEndpoint:
    """One for each world, started with its first agent."""

    model, failed, overrides = "policy", False, True

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._service: HttpService | None = None
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> str:
        """Where agents find it: the base URL of OpenAI's clients."""
        async with self._starting:
            if self._service is None:
                self._loop = asyncio.get_running_loop()
                place = {"host": "127.0.0.1", "port": 0, "max_body_bytes": MAX_BODY}
                service = HttpService("endpoint of agents", self._open, arrive_s=30.0, stop_s=1.0, **place)  # type: ignore[arg-type]
                await asyncio.to_thread(service.start)
                self._service = service
            return f"{self._service.url}/v1"

    def open(self) -> tuple[str, Session]:
        """The key of a new session, and the session."""
        key = f"sk-rlsys-{secrets.token_urlsafe(24)}"
        self._sessions[key] = Session()
        return key, self._sessions[key]

    def forget(self, key: str) -> None:
        self._sessions.pop(key, None)

    async def close(self) -> None:
        for session in self._sessions.values():
            session.end("the environment was closed")
        self._sessions.clear()
        service, self._service = self._service, None
        if service is not None:
            await asyncio.to_thread(service.stop)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Starlette]:
        yield make_chat_app(self)

    # -- in the thread of the server ------------------------------------------------------------------------------

    def _session(self, key: str) -> Session:
        session = self._sessions.get(key)
        if session is None:
            raise Refused(401, "this key belongs to no episode that is being played")
        return session

    def admit(self, key: str) -> None:
        self._session(key)

    async def answer(self, key: str, request: ChatRequest) -> list[ChatAnswer]:
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._session(key).ask(request), self._loop))

    def note_refused(self, key: str) -> None:
        session = self._sessions.get(key)
        if session is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(session.note_refused)
