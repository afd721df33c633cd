"""`POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models` as a Starlette app, whoever answers."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from envs.agents.chat import ChatAnswer, ChatRequest, Refused, chat_events, completion_json, read_request
from envs.agents.responses import read_response_request, response_events, response_json

MAX_BODY = 1 << 20  # bytes of a request: what a client sends is tokenised
ALIVE_S = 10.0  # between two signs of life in a stream
OVERRIDES = "x-rlsys-overridden"
CLIENT_GONE = 499


@dataclass(frozen=True, slots=True)
class ApiForm:
    """In which one of OpenAI's APIs asks and is answered: by an answer's number, the model, the request and answers."""

    read: Callable[..., ChatRequest]
    whole: Callable[[str, str, ChatRequest, Sequence[ChatAnswer]], Mapping[str, Any]]
    events: Callable[[str, str, ChatRequest, Sequence[ChatAnswer] | Refused], Iterator[str]]


FORMS = {
    "/v1/chat/completions": ApiForm(
        read_request, lambda number, model, _, answers: completion_json(number, model, answers), chat_events
    ),
    "/v1/responses": ApiForm(read_response_request, response_json, response_events),
}


class AnswersRequests(Protocol):
    """What stands behind the app. Each raises Refused."""

    model: str  # its name
    overrides: bool  # it samples by its own settings: a client that sends others is told by a header

    @property
    def failed(self) -> bool:
        """It can answer nothing any more."""
        ...

    def admit(self, key: str) -> None:
        """Whether this API key may ask."""
        ...

    async def answer(self, key: str, request: ChatRequest) -> list[ChatAnswer]:
        """One for each choice."""
        ...

    def note_refused(self, key: str) -> None: ...


def make_chat_app(answering: AnswersRequests) -> Starlette:
    """`read_request` and `read_response_request` say what a request may hold."""

    def admit(request: Request) -> str:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        answering.admit(key)
        return key

    async def models(request: Request) -> Response:
        admit(request)
        model = {"id": answering.model, "object": "model", "created": 0, "owned_by": "rlsys"}
        return _json_response({"object": "list", "data": [model]})

    async def complete(form: ApiForm, request: Request) -> Response:
        key = admit(request)
        try:
            return await answer(form, request, key)
        except Refused:
            answering.note_refused(key)
            raise

    async def answer(form: ApiForm, request: Request, key: str) -> Response:
        asked = form.read(await _read_json(request), overrides=answering.overrides)
        number = secrets.token_hex(12)
        headers = {OVERRIDES: ", ".join(asked.overridden)} if asked.overridden else {}
        if asked.stream:
            answers = asyncio.ensure_future(answering.answer(key, asked))
            refused = partial(answering.note_refused, key)
            stream = _stream(answers, partial(form.events, number, answering.model, asked), refused)
            return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
        answers_now = await _while_connected(request, answering.answer(key, asked))
        return _json_response(form.whole(number, answering.model, asked, answers_now), headers=headers)

    async def health(_: Request) -> Response:
        return _json_response({"status": "unhealthy" if answering.failed else "ok"}, 503 if answering.failed else 200)

    routes = [
        *(Route(path, partial(complete, form), methods=["POST"]) for path, form in FORMS.items()),
        Route("/v1/models", models, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
    ]
    errors: dict[Any, Any] = {Refused: _refuse, ClientDisconnect: lambda *_: Response(status_code=CLIENT_GONE)}
    return Starlette(routes=routes, exception_handlers=errors)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    headers = {"retry-after": "1"} if error.status == 429 else {}
    return _json_response(error.json(), error.status, headers)


def _json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """In ASCII: half of a surrogate pair, which a client may have sent, has no other form."""
    return Response(json.dumps(content).encode(), status, headers, media_type="application/json")


async def _while_connected(request: Request, answers: Coroutine[Any, Any, list[ChatAnswer]]) -> list[ChatAnswer]:
    """What a client that has gone no longer waits for is not sampled. Raises ClientDisconnect."""
    answering, leaving = asyncio.ensure_future(answers), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return await answering
    finally:
        for task in (answering, leaving):
            task.cancel()


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
    answers: asyncio.Future[list[ChatAnswer]],
    events: Callable[[Sequence[ChatAnswer] | Refused], Iterator[str]],
    refused: Callable[[], None],
) -> AsyncIterator[str]:
    """What the policy wrote, once it is written; until then a sign of life, for a client that waits."""
    written: Sequence[ChatAnswer] | Refused
    try:
        while not answers.done():
            await asyncio.wait([answers], timeout=ALIVE_S)
            if not answers.done():
                yield ": the policy is writing\n\n"
        written = answers.result()
    except Refused as error:
        written = error
        refused()
    finally:  # the client may have gone
        answers.cancel()
        with suppress(asyncio.CancelledError, Refused):
            await answers
    for event in events(written):
        yield event
