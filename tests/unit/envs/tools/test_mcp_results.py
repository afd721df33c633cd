"""envs.tools.mcp: which results of a server are errors."""

import asyncio
from typing import Any

import pytest

from envs.tools.mcp import McpPeer
from envs.tools.result import ToolError


@pytest.mark.parametrize(("flag", "wrong"), [(True, True), ("yes", True), (1, True), (False, False), (None, False)])
def test_only_a_flag_that_is_absent_or_false_is_a_success(monkeypatch: Any, flag: Any, wrong: bool) -> None:
    async def ask(*_: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "4"}], "isError": flag}

    server = object.__new__(McpPeer)
    monkeypatch.setattr(McpPeer, "_ask", ask)
    assert isinstance(asyncio.run(server.call("f", {})), ToolError) == wrong
