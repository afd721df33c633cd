"""The address at which agents ask the policy: `POST /v1/chat/completions`, `GET /v1/models`, on loopback.

An agent's API key says which episode it belongs to. The server has a thread of its own, so that what agents send is
read apart from the episodes; what it has read is handed to the session in the loop of the environments.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from envs.agents.chat import ChatAnswer, ChatRequest, Refused, chunks_json, completion_json, read_request
from envs.agents.session import Session
from envs.services.http import HttpService

MAX_BODY = 1 << 20  # bytes of a request: what an agent sends is tokenised
ALIVE_S = 10.0  # between two signs of life in a stream
MODEL = "policy"
OVERRIDES = "x-rlsys-overridden"


class AgentEndpoint:
    """One for each world, started with its first agent."""

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
                self._service = HttpService(
                    "endpoint of agents",
                    self._open,
                    host="127.0.0.1",
                    port=0,
                    arrive_s=30.0,
                    max_body_bytes=MAX_BODY,
                    stop_s=1.0,
                )
                await asyncio.to_thread(self._service.start)
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
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]
        errors: dict[Any, Any] = {Refused: _refuse, ClientDisconnect: lambda *_: Response(status_code=499)}
        yield Starlette(routes=routes, exception_handlers=errors)

    def _session_of(self, request: Request) -> Session:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        session = self._sessions.get(key.strip()) if scheme.lower() == "bearer" else None
        if session is None:
            raise Refused(401, "this key belongs to no episode that is being played")
        return session

    async def _models(self, request: Request) -> Response:
        self._session_of(request)
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "rlsys"}]})

    async def _complete(self, request: Request) -> Response:
        session, loop = self._session_of(request), _known(self._loop)
        try:
            return await self._answer(request, session, loop)
        except Refused as refused:
            loop.call_soon_threadsafe(session.note_refused, refused.status)
            raise

    async def _answer(self, request: Request, session: Session, loop: asyncio.AbstractEventLoop) -> Response:
        body = await _read_json(request)
        asked = read_request(body)
        model, number = str(body.get("model") or MODEL), f"chatcmpl-{secrets.token_hex(12)}"
        headers = {OVERRIDES: ", ".join(asked.overridden)} if asked.overridden else {}
        answers = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.ask(asked), loop))
        if asked.stream:
            stream = _stream(answers, asked, number, model)
            return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
        return JSONResponse(completion_json(number, model, await answers), headers=headers)


def _known(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    assert loop is not None
    return loop


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    headers = {"retry-after": "1"} if error.status == 429 else {}
    return JSONResponse(error.json(), error.status, headers)


async def _read_json(request: Request) -> Any:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise Refused(413, f"the request is larger than {MAX_BODY >> 10} KiB")
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the body is no JSON") from error


async def _stream(
    answers: asyncio.Future[list[ChatAnswer]], asked: ChatRequest, number: str, model: str
) -> AsyncIterator[str]:
    """What the policy wrote, once it is written; until then a sign of life, for a client that waits."""
    while not answers.done():
        await asyncio.wait([answers], timeout=ALIVE_S)
        if not answers.done():
            yield ": the policy is writing\n\n"
    try:
        for chunk in chunks_json(number, model, answers.result(), usage=asked.usage):
            yield f"data: {json.dumps(chunk)}\n\n"
    except Refused as error:
        yield f"data: {json.dumps(error.json())}\n\n"
    yield "data: [DONE]\n\n"
