"""MCP servers of the reference SDK over real HTTP, each a process: their tools, and what their ends cost."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envs.services.guard import ToolFailed
from envs.tools.offered import ToolEntry
from envs.tools.result import Result, ToolError
from launch.cli import run
from rlsys.errors import BadInput
from rlsys.types import FailureKind
from tests.e2e.test_offered_tools import ask, offering

SERVER = Path(__file__).parents[1] / "fakes" / "sdk_mcp.py"
TOKEN = "t0ken-of-a-test"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(how: str, port: int, **variables: str) -> Iterator[str]:
    command = [sys.executable, str(SERVER), str(port), how]
    process = subprocess.Popen(command, env=os.environ | variables, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/{'sse' if how == 'older' else 'mcp'}"
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.parametrize("how", ["sse", "json", "alone"])
def test_tools_at_a_url_are_listed_and_called(how: str) -> None:
    async def play(url: str) -> None:
        entry = ToolEntry(mcp=url, only=["echo", "long", "slow", "slow_ones"], deadline_s=3.0)
        async with offering(entry) as tools:
            assert [schema["function"]["name"] for schema in tools.schemas] == entry.only
            texts = [f"{number}: ä" for number in range(5)]
            assert await asyncio.gather(*(ask(tools, "echo", text=text) for text in texts)) == texts
            wrong = [await ask(tools, "long"), await ask(tools, "slow"), await ask(tools, "echo", text="\ud83d")]
            says = ["an answer of more than 4 MiB", "no answer within 3 s", "it answered 400"]
            assert all(isinstance(answer, ToolError) for answer in wrong)
            assert all(part in answer.text for part, answer in zip(says, wrong, strict=True))  # type: ignore[union-attr]
            assert await ask(tools, "echo", text="after") == "after"
            while await ask(tools, "slow_ones") != "0":  # the session's end reaches the call that took too long
                assert how != "alone"
                await asyncio.sleep(0.05)

    with serving(how, free_port()) as url:
        asyncio.run(asyncio.wait_for(play(url), 120))


def test_a_server_that_was_killed_and_started_again_is_asked_again() -> None:
    async def play(port: int) -> None:
        entry = ToolEntry(mcp=f"http://127.0.0.1:{port}/mcp", workers=1, deadline_s=20.0)
        with serving("sse", port):
            tools = offering(entry)
            offered = await tools.__aenter__()
            before = await ask(offered, "who")
        with pytest.raises(ToolFailed, match="cannot be reached") as gone:
            await ask(offered, "who")
        assert gone.value.failure.kind is FailureKind.INFRA
        with serving("json", port):
            after = await ask(offered, "who")
            assert isinstance(before, str) and isinstance(after, str) and before != after
        await tools.__aexit__(None, None, None)

    asyncio.run(asyncio.wait_for(play(free_port()), 120))


def test_a_session_that_outlives_its_server_is_replaced() -> None:
    async def play(port: int) -> list[Result]:
        entry = ToolEntry(mcp=f"http://127.0.0.1:{port}/mcp", workers=1, deadline_s=20.0)
        with serving("sse", port):
            tools = offering(entry)
            offered = await tools.__aenter__()
            answers = [await ask(offered, "echo", text="one")]
        with serving("sse", port):
            answers.append(await ask(offered, "echo", text="two"))
            stats = offered.stats()["mcp_0"]
            await tools.__aexit__(None, None, None)
        assert (stats.retries, stats.errors) == (0, {})
        return answers

    assert asyncio.run(asyncio.wait_for(play(free_port()), 120)) == ["one", "two"]


def test_a_token_is_sent_by_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(url: str, variable: str | None) -> Result:
        async with offering(ToolEntry(mcp=url, token_env=variable)) as tools:
            return await ask(tools, "echo", text="hi")

    monkeypatch.setenv("RIGHT_TOKEN", TOKEN)
    monkeypatch.setenv("WRONG_TOKEN", TOKEN[::-1])
    with serving("sse", free_port(), SDK_MCP_TOKEN=TOKEN) as url:
        assert asyncio.run(play(url, "RIGHT_TOKEN")) == "hi"
        for variable, says in (("WRONG_TOKEN", "is the token in WRONG_TOKEN valid"), (None, "token_env")):
            with pytest.raises(BadInput, match="answered 401") as refused:
                asyncio.run(play(url, variable))
            assert says in str(refused.value) and TOKEN[::-1] not in str(refused.value)


def test_a_dry_run_asks_the_server_and_says_what_is_wrong_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    def dry_run(url: str) -> tuple[int, str]:
        tools = f"env.tools=[{{mcp: '{url}', only: [echo]}}, {{name: calculator}}]"
        code = run(["train", "worlds/tools_mcp", "env.data=docs/environments/own_tools.jsonl", tools, "--dry-run"])
        return code, capsys.readouterr().err

    with serving("older", port := free_port()) as url:
        code, err = dry_run(url)
        assert code == 2 and "older HTTP+SSE transport is not supported" in err and err.count("\n") == 1
    code, err = dry_run(f"http://127.0.0.1:{port}/mcp")
    assert code == 2 and "env.tools.0.mcp" in err and "cannot be reached" in err and err.count("\n") == 1
