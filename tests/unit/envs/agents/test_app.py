"""The address: who may ask, what a client that leaves costs, and errors in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from envs.agents.app import MAX_BODY, make_chat_app
from envs.agents.chat import ChatAnswer, ChatRequest, Refused
from envs.services.endpoint import Choice, Endpoint, Question
from envs.services.http import HttpService
from envs.tools.schema import make_schema
from rlsys.types import Message, Sampled, ToolCall, ToolOffer, TurnStop

ASK = {"messages": [{"role": "user", "content": "q"}]}


class Scripted:
    """Answers to the key `quick`; to `slow` it never does, and `broken` it refuses late."""

    model, failed, overrides = "m", False, True

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()
        self.refused = 0
        self.asked: list[ChatRequest] = []
        self.says = ChatAnswer(content="a", calls=(), sampled=Sampled(num_context=1, num_tokens=1, stop=TurnStop.EOS))

    def admit(self, key: str) -> None:
        if key not in ("quick", "slow", "broken"):
            raise Refused(401, "who is it?")

    async def answer(self, key: str, request: ChatRequest) -> list[ChatAnswer]:
        self.begun.set()
        if key == "slow":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if key == "broken":
            raise Refused(503, "the engine is gone")
        self.asked.append(request)
        return [self.says] * request.choices

    def note_refused(self, key: str) -> None:
        self.refused += 1


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def url(scripted: Scripted) -> Iterator[str]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield make_chat_app(scripted)

    place = {"host": "127.0.0.1", "port": 0, "max_body_bytes": MAX_BODY}
    service = HttpService("test", opened, arrive_s=30.0, stop_s=1.0, **place)  # type: ignore[arg-type]
    yield service.start() + "/v1/chat/completions"
    service.stop()


def test_calls_results_and_tools_are_here_what_an_evaluation_has_sent(url: str, scripted: Scripted) -> None:
    """`rlsys eval --endpoint` against `rlsys serve policy`."""
    call = ToolCall(name="add", arguments={"a": [2, None], "b": "ü"}, call_id="000000000")
    messages = (
        Message(role="user", content="q"),
        Message(role="assistant", content="Let me.", calls=(call,)),
        Message(role="tool", content="5", call_id=call.call_id),
    )
    schema = make_schema("add", "", {"type": "object", "properties": {}})
    question = Question(messages=messages, max_tokens=9, temperature=0.5, stop=("!",), tools=(json.dumps(schema),))
    scripted.says = replace(scripted.says, calls=(replace(call, name="next"),))

    async def ask() -> Choice:
        endpoint = Endpoint(url.removesuffix("/chat/completions"), "m", "quick")
        try:
            return await endpoint.complete(question)
        finally:
            await endpoint.close()

    choice, (request,) = asyncio.run(ask()), scripted.asked
    assert (choice.text, choice.calls) == ("a", (replace(call, name="next", call_id=""),))
    assert request.messages == (*messages[:2], replace(messages[2], tool="add"))
    assert request.settings.offer == ToolOffer(schemas=question.tools)
    assert (request.settings.stop, request.settings.max_tokens) == (("!",), 9)


def post(url: str, key: str, body: Any = ASK, **options: Any) -> httpx.Response:
    return httpx.post(url, content=json.dumps(body), headers={"authorization": f"Bearer {key}"}, **options)


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_sampled_for_a_client_that_has_gone(url: str, scripted: Scripted, stream: bool) -> None:
    with pytest.raises(httpx.ReadTimeout):
        post(url, "slow", {**ASK, "stream": stream}, timeout=0.5)
    assert scripted.begun.is_set() and scripted.cancelled.wait(30)
    assert post(url, "quick").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_fails_is_an_error_of_the_sdk(url: str, stream: bool) -> None:
    client = OpenAI(base_url=url.removesuffix("/chat/completions"), api_key="broken", max_retries=0)
    with pytest.raises(openai.APIError, match="the engine is gone"):
        answer: Any = client.responses.create(model="any", input="q", stream=stream)
        list(answer)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_counted_in_a_stream_too(url: str, scripted: Scripted, stream: bool) -> None:
    before = scripted.refused
    post(url, "broken", {**ASK, "stream": stream})
    assert scripted.refused == before + 1


def test_errors_have_openais_form_and_are_counted(url: str, scripted: Scripted) -> None:
    assert post(url, "other").json()["error"]["message"] == "who is it?"
    refused = [post(url, "quick", body).status_code for body in ([], {}, {**ASK, "stop": 5}, {**ASK, "\ud800": 1})]
    tools = {"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}
    assert [*refused, post(url, "quick", {**ASK, **tools}).status_code] == [400] * 5 and scripted.refused == 5
    answer = post(url, "quick", {**ASK, "n": 2, "seed": 1})
    assert len(answer.json()["choices"]) == 2 and answer.headers["x-rlsys-overridden"] == "seed"
