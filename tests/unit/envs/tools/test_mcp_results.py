"""envs.tools.mcp: which results of a server are errors, and what is said of one that does not start."""

import asyncio
import sys
from typing import Any

import pytest

from envs.tools.child_process import Command
from envs.tools.mcp import McpPeer, list_tools
from envs.tools.result import ToolError
from tests.refused import refused


@pytest.mark.parametrize(("flag", "wrong"), [(True, True), ("yes", True), (1, True), (False, False), (None, False)])
def test_only_a_flag_that_is_absent_or_false_is_a_success(flag: Any, wrong: bool) -> None:
    class Server(McpPeer):
        def __init__(self) -> None: ...

        async def _ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": "4"}], "isError": flag}

    assert isinstance(asyncio.run(Server().call("f", {})), ToolError) == wrong


def test_a_server_of_the_older_sdk_is_told_of_its_own_python() -> None:
    """With the words of mcp 2, which say what has become of FastMCP, to their end."""
    words = (sys.executable, "-c", "from mcp.server.fastmcp import FastMCP")
    server = Command(words=words, memory_mb=512)
    with refused(key="env.tools.0.mcp", says="mcp<2", expected="mcp: /path/venv/bin/python SERVER"):
        list_tools("env.tools.0.mcp", server, 60.0)
