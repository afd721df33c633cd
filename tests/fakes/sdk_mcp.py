"""An MCP server of the reference SDK over HTTP: python tests/fakes/sdk_mcp.py PORT HOW. HOW: sse, json, alone, older.

With SDK_MCP_TOKEN in its environment it wants that token.
"""

import asyncio
import os
import sys

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

TOKEN = os.environ.get("SDK_MCP_TOKEN")
slow_calls: list[str] = []


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="test", scopes=[]) if token == TOKEN else None


def echo(text: str) -> str:
    """Say a text."""
    return text


def who() -> str:
    """Say which process this is."""
    return str(os.getpid())


def long() -> str:
    """Say too much."""
    return "x" * (5 << 20)


async def slow() -> str:
    """Say nothing."""
    slow_calls.append("")
    try:
        await asyncio.sleep(1000)
    finally:
        slow_calls.pop()
    return ""


def slow_ones() -> str:
    """Say how many calls of slow go on."""
    return str(len(slow_calls))


if __name__ == "__main__":
    port, how = int(sys.argv[1]), sys.argv[2]
    at = f"http://127.0.0.1:{port}"
    auth = AuthSettings(issuer_url=at, resource_server_url=at, validate_token_resource=False)  # type: ignore[arg-type]
    server = MCPServer("test", auth=auth if TOKEN else None, token_verifier=Verifier() if TOKEN else None)
    for tool in (echo, who, long, slow, slow_ones):
        server.tool()(tool)
    if how == "older":
        server.run("sse", port=port)
    else:
        server.run("streamable-http", port=port, json_response=how == "json", stateless_http=how == "alone")
