"""envs.tools.mcp: which results of a server are errors."""

import asyncio
from typing import Any

import pytest

from envs.tools.mcp import McpPeer
from envs.tools.result import ToolError


@pytest.mark.parametrize(("flag", "wrong"), [(True, True), ("yes", True), (1, True), (False, False), (None, False)])
def test_only_a_flag_that_is_absent_or_false_is_a_success(flag: Any, wrong: bool) -> None:
    class Server(McpPeer):
        def __init__(self) -> None: ...

        async def _ask(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": "4"}], "isError": flag}

    assert isinstance(asyncio.run(Server().call("f", {})), ToolError) == wrong
