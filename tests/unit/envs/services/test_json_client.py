"""envs.services.json_client: what each answer of a server means, with a server of real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from envs.services.guard import ToolBusy, ToolRefused
from envs.services.json_client import JsonClient

KEY = "k3y-of-a-test"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u202e"


def post(status: int, body: str = "", headers: dict[str, str] | None = None, **options: Any) -> Any:
    """What `JsonClient.post` gives for such an answer, and the headers of the request that the server saw."""
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response(status=status, text=body, headers=headers)

    async def play() -> Any:
        app = web.Application()
        app.router.add_post("/v1/ask", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = JsonClient(f"http://127.0.0.1:{runner.addresses[0][1]}/v1/", KEY, **options)
        assert KEY not in repr(client)
        try:
            return await client.post("/ask", {"a": 1})
        finally:
            await client.close()
            await runner.cleanup()

    return asyncio.run(play()), seen[0].headers


@pytest.mark.parametrize(
    ("options", "header", "value"),
    [({}, "Authorization", f"Bearer {KEY}"), ({"key_header": "X-API-KEY"}, "X-API-KEY", KEY)],
)
def test_json_goes_in_and_out_and_the_key_with_it(options: dict[str, str], header: str, value: str) -> None:
    answer, headers = post(200, '{"b": [2]}', **options)
    assert (answer, headers[header], headers["content-type"]) == ({"b": [2]}, value, "application/json")


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (400, ToolRefused, "answered 400: no *** here"),
        (404, ToolRefused, "answered 404"),
        (408, ConnectionError, "answered 408"),
        (401, ConnectionError, "answered 401: is the key in SOME_KEY valid?"),
        (429, ToolBusy, "answered 429"),
        (500, ConnectionError, "answered 500"),
        (503, ToolBusy, "answered 503"),
        (302, ConnectionError, "answered 302"),
    ],
)
def test_each_status_says_who_is_at_fault(status: int, error: type[Exception], said: str) -> None:
    headers = {"Retry-After": "7", "Location": "http://127.0.0.1:1/"}
    with pytest.raises(error) as caught:
        post(status, f"no {KEY}\nhere", headers, key_from="SOME_KEY", name="them")
    assert str(caught.value).startswith(f"them {said}")
    assert KEY not in repr(caught.value)
    if isinstance(caught.value, ToolBusy):
        assert caught.value.after_s == 7.0


def test_what_a_server_repeats_of_a_prompt_rules_no_terminal() -> None:
    with pytest.raises(ToolRefused) as caught:
        post(400, f"bad prompt {HOSTILE}", name="them")
    assert str(caught.value) == "them answered 400: bad prompt \\x1b]0;owned\\x07\\x1b[2J\\x1b[31m\\u202e"


def test_a_key_that_is_refused_may_be_final() -> None:
    with pytest.raises(ToolRefused, match="answered 403"):
        post(403, refused_key=ToolRefused)


@pytest.mark.parametrize(("body", "said"), [("{", "Expecting"), ("[" * 9_000, ""), ("1" * 9_999, "an answer of more")])
def test_an_answer_that_is_too_long_or_no_json_is_an_error(body: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        post(200, body, name="them", max_bytes=9_500)
    assert str(caught.value).startswith(f"them: {said}") and len(str(caught.value)) <= 200
