"""envs.tools.mcp_http: what each answer of a server at a URL leads to, with a server of real sockets."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from envs.services.guard import ToolFailed
from envs.tools.call_pool import CallPool, PoolLimits
from envs.tools.mcp import McpPeer, list_tools
from envs.tools.mcp_http import Address, read_answer
from envs.tools.offered import ToolEntry
from envs.tools.result import Result, ToolError
from rlsys.errors import BadInput
from rlsys.types import FailureKind
from tests.fakes.mcp_at_url import McpAtUrl, mcp_at_url

TOKEN = "t0ken-of-a-test"


def pool_of(server: McpAtUrl, *, workers: int = 1, deadline_s: float = 20.0) -> CallPool:
    limits = PoolLimits(workers=workers, deadline_s=deadline_s, start_timeout_s=20.0, max_reply=1000)
    address = Address(url=server.url, token=TOKEN, token_from="SOME_TOKEN")
    assert TOKEN not in repr(address)
    return CallPool("far", lambda: McpPeer.start(address), limits)


def run(play: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(play, 60))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("html", "an answer that is not JSON"),
        ("deep", "an answer that is not JSON"),
        ("batch", "no JSON object"),
        ("nothing", "ended its answer"),
        ("other id", "ended its answer"),
        ("flood", "more than 4 MiB"),
        ("squeezed", "not JSON"),
        ("event flood", "more than 4 MiB"),
        ("endless line", "more than 4 MiB"),
        ("ends", "ended its answer"),
        ("breaks off", "broke off its answer"),
        ("hang", "no answer within 0.5 s"),
        ("answers 202", "older HTTP+SSE transport"),
        ("answers 400", "it answered 400: no"),
        ("answers 404", "forgotten the session"),
        ("answers 500", "it answered 500: no"),
        ("answers 502", "it answered 502: no"),
    ],
)
def test_an_answer_that_is_wrong_costs_its_own_call(how: str, says: str) -> None:
    async def play() -> None:
        async with mcp_at_url(how) as server:
            pool = pool_of(server, deadline_s=0.5 if how == "hang" else 20.0)
            failed = await pool.call("wrong", {})
            assert isinstance(failed, ToolError) and says in failed.text and len(failed.text) < 400
            assert server.sessions == (set() if how != "answers 404" else {"session-1"})  # a broken one is ended
            assert await pool.call("echo", {"text": "after"}) == "after"
            await pool.close()
            assert server.greeted == 2 and "session-2" not in server.sessions

    run(play())


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("events", "mine"),
        ("goes on", "mine"),
        ("asks", "['error', 'id', 'jsonrpc'], ['id', 'jsonrpc', 'result'], mine"),
    ],
)
def test_answers_as_events_are_read(how: str, says: str) -> None:
    async def play() -> None:
        async with mcp_at_url(how) as server:
            pool = pool_of(server)
            assert await pool.call("wrong", {"text": "mine"}) == says
            assert await pool.call("echo", {"text": "after"}) == "after" and server.greeted == 1
            await pool.close()

    run(play())


def test_each_request_says_its_session_its_revision_and_the_token() -> None:
    async def play() -> None:
        async with mcp_at_url("") as server:
            pool = pool_of(server)
            assert await pool.call("echo", {"text": "hi"}) == "hi"
            await pool.close()
            names = ("method", "Mcp-Session-Id", "MCP-Protocol-Version", "Authorization")
            first, *others = [[headers.get(name) for name in names] for headers in server.headers]
            assert first == ["POST", None, None, f"Bearer {TOKEN}"]
            assert [method for method, *_ in others] == ["POST", "POST", "DELETE"]
            assert all(rest == ["session-1", "2025-03-26", f"Bearer {TOKEN}"] for _, *rest in others)

    run(play())


def test_a_session_that_the_server_has_forgotten_is_begun_again_and_the_call_made_again() -> None:
    async def play() -> None:
        async with mcp_at_url("") as server:
            pool = pool_of(server, workers=2)
            assert await asyncio.gather(*(pool.call("echo", {"text": text}) for text in "ab")) == ["a", "b"]
            assert len(server.sessions) == 2  # one call at a time in each
            server.sessions.clear()
            answers = [await pool.call("echo", {"text": text}) for text in "cde"]
            assert answers == ["c", "d", "e"] and pool.stats().errors == {}
            await pool.close()
            assert not server.sessions

    run(play())


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("401", "is the token in SOME_TOKEN valid"),
        ("403", "answered 403"),
        ("404", "answered 404: no\\x1b Bearer ***"),
        ("405", "older HTTP+SSE transport is not supported"),
        ("307", "redirects are not followed"),
        ("503", "answered 503"),
        ("bad session", "'a session' in the place of a session"),
        ("bad revision", "in the place of a session or a revision"),
    ],
)
def test_a_server_that_takes_no_session_is_bad_input_at_the_start_and_infrastructure_later(
    status: str, says: str
) -> None:
    async def play() -> None:
        async with mcp_at_url(status) as server:
            address = Address(url=server.url, token=TOKEN, token_from="SOME_TOKEN")
            with pytest.raises(BadInput, match=r"env\.tools\.0\.mcp") as refused:
                await asyncio.to_thread(list_tools, "env.tools.0.mcp", address, 20.0)
            pool = pool_of(server)
            with pytest.raises(ToolFailed) as failed:
                await pool.call("echo", {})
            await pool.close()
            assert failed.value.failure.kind is FailureKind.INFRA and pool.stats().errors == {"infra": 1}
            for text in (str(refused.value), failed.value.failure.detail):
                assert says in text and TOKEN not in text

    run(play())


@pytest.mark.parametrize("how", ["answers 500", "answers 504", "flood", "breaks off"])
def test_a_call_that_may_have_been_carried_out_is_not_made_again(how: str) -> None:
    async def play() -> None:
        async with mcp_at_url(how) as server:
            pool = pool_of(server)
            assert await pool.call("echo", {"text": "before"}) == "before"
            before = len(server.headers)
            assert isinstance(await pool.call("wrong", {}), ToolError)
            assert [headers["method"] for headers in server.headers[before:]] == ["POST", "DELETE"]
            await pool.close()

    run(play())


def test_events_are_read_wherever_their_bytes_are_cut() -> None:
    text = b'id: 7\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata: {"b": "t0ken"}\n\n'

    async def read(cut: int) -> list[Any]:
        async def pieces(_: int) -> AsyncIterator[bytes]:
            for piece in (text[:cut], text[cut:]):
                yield piece

        response: Any = SimpleNamespace(content_type="text/event-stream", content=SimpleNamespace(iter_chunked=pieces))
        return [message async for message in read_answer(response, "t0ken")]

    for cut in range(1, len(text)):
        assert asyncio.run(read(cut)) == [{"a": 1}, {"b": "***"}], cut


@pytest.mark.parametrize("status", ["401", "429"])
def test_a_server_that_takes_no_calls_any_more_is_no_fault_of_the_call(status: str) -> None:
    async def play() -> None:
        async with mcp_at_url(f"answers {status}") as server:
            pool = pool_of(server)
            assert await pool.call("echo", {"text": "before"}) == "before"
            with pytest.raises(ToolFailed, match=f"answered {status}") as failed:
                await pool.call("wrong", {})
            assert failed.value.failure.kind is FailureKind.INFRA and pool.stats().retries == 1
            await pool.close()

    run(play())


@pytest.mark.parametrize(("how", "far"), [("hang", "called"), ("is silent", "called"), ("is silent", "answered")])
def test_the_end_of_the_pool_ends_calls_that_are_under_way(how: str, far: str) -> None:
    async def play() -> None:
        async with mcp_at_url(how) as server:
            pool = pool_of(server, deadline_s=1000.0)
            calling: asyncio.Task[Result] = asyncio.create_task(pool.call("wrong", {}))
            await getattr(server, far).wait()
            await pool.close()
            await asyncio.wait([calling])
            assert calling.exception() is None and isinstance(calling.result(), ToolError) and not server.sessions

    run(play())


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"mcp": "http://far.example/mcp", "token_env": "A_TOKEN"}, r"env\.tools\.0\.token_env.*plain_http=true"),
        ({"mcp": "https://far.example/mcp?key=5"}, r"env\.tools\.0\.mcp: expected an address without"),
        ({"mcp": "https://far.example/mcp", "variables": ["A"]}, r"env\.tools\.0\.variables"),
        ({"mcp": "https://far.example/mcp", "memory_mb": 5}, r"env\.tools\.0\.memory_mb=5"),
        ({"mcp": "HTTP://"}, r"env\.tools\.0\.mcp: expected an http or https address"),
        ({"mcp": "python server.py", "token_env": "A_TOKEN"}, r"env\.tools\.0\.token_env"),
        ({"function": "a.b", "plain_http": True}, r"env\.tools\.0\.plain_http"),
        ({"name": "search", "token_env": "A_TOKEN"}, r"env\.tools\.0\.token_env"),
    ],
)
def test_keys_that_do_not_go_with_an_address_are_refused(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        ToolEntry(**keys).check("env.tools.0.")


def test_a_token_may_be_sent_where_that_is_allowed_and_has_to_be_there() -> None:
    entry = ToolEntry(mcp="http://far.example/mcp", token_env="NO_SUCH_TOKEN", plain_http=True)
    entry.check("env.tools.0.")
    with pytest.raises(BadInput, match=r"env\.tools\.0\.token_env.*not set|NO_SUCH_TOKEN is not set"):
        entry.server("env.tools.0.")
