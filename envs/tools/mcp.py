"""Tools of an MCP server: a process that speaks over its standard input and output, or a server at a URL.

Of the Model Context Protocol (modelcontextprotocol.io, revision 2025-06-18) what tools need: initialize, tools/list,
tools/call. The reference SDK's client reads lines of any length into memory, so the few messages are written here; the
tests speak with servers of the SDK. A server says what it wants: everything is checked, and bounded. How a message gets
there is a `Transport`'s matter.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shlex
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from envs.services.guard import ToolBusy
from envs.tools.child_process import MAX_LINE, CallBroke, ChildProcess, Command, Transport
from envs.tools.mcp_http import Address, HttpSession
from envs.tools.result import Result, ToolError
from envs.tools.schema import Schema, make_schema
from rlsys.errors import BadInput

REVISION = "2025-06-18"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_TOOLS, MAX_PAGES = 128, 16
MAX_SCHEMA, MAX_DESCRIPTION = 1 << 14, 2000  # characters
_METHOD_NOT_FOUND = -32601


def command_words(command: str) -> tuple[str, ...]:
    """The words of a command line; `python` is the interpreter that runs this. () for an open quote, or no word."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ()
    return (*([sys.executable] if words[:1] == ["python"] else words[:1]), *words[1:])


class McpPeer:
    """A server that has been greeted."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @classmethod
    async def start(cls, server: Command | Address) -> McpPeer:
        """Raises OSError, CallBroke and ToolBusy."""
        peer = cls(HttpSession(server) if isinstance(server, Address) else await ChildProcess.start(server))
        try:
            hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "rlsys", "version": "1"}}
            await peer._ask("initialize", hello)
            await peer.transport.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            await peer.transport.close()
            raise
        return peer

    async def list_tools(self) -> list[Schema]:
        """Raises CallBroke for what is no list of tools."""
        schemas: list[Schema] = []
        cursor: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = await self._ask("tools/list", cursor)
            tools = page.get("tools")
            schemas += [_read_tool(tool) for tool in tools] if isinstance(tools, list) else []
            following = page.get("nextCursor")
            if not isinstance(following, str) or len(schemas) > MAX_TOOLS:
                break
            cursor = {"cursor": following}
        if not 0 < len(schemas) <= MAX_TOOLS:
            raise CallBroke(f"it lists {len(schemas)} tools: expected 1 to {MAX_TOOLS}")
        return schemas

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        try:
            result = await self._ask("tools/call", {"name": tool, "arguments": dict(arguments)})
        except _Refused as refused:
            return ToolError(f"error: {refused}")
        content = result.get("content")
        if not isinstance(content, list):
            raise CallBroke("its result has no content")
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        text = "\n".join(line for line in texts if isinstance(line, str))
        if not texts and isinstance(result.get("structuredContent"), dict):
            text = json.dumps(result["structuredContent"], ensure_ascii=False)
        elif not texts and content:
            return ToolError("error: the result is no text")
        return ToolError(text) if result.get("isError") not in (None, False) else text

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Its result; what the server says in between is read over, and what it asks is refused."""
        number = secrets.token_hex(8)  # not to be guessed: an earlier call may have had an answer written for this one
        await self.transport.send({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)})
        num_chars = 0
        while num_chars < MAX_LINE:
            message = await self.transport.receive()
            num_chars += len(str(message))
            if "method" in message:
                if "id" in message:
                    answer = {"result": {}} if message["method"] == "ping" else {"error": _NO_METHOD}
                    await self.transport.send({"jsonrpc": "2.0", "id": message["id"]} | answer)
            elif message.get("id") == number:
                result, error = message.get("result"), message.get("error")
                if isinstance(result, dict):
                    return result
                reason = error.get("message") if isinstance(error, dict) else None
                if isinstance(reason, str):
                    raise _Refused(reason[:500])
                raise CallBroke("it answered with neither a result nor an error")
        raise CallBroke(f"it wrote more than {MAX_LINE >> 20} MiB that answer nothing")


_NO_METHOD = {"code": _METHOD_NOT_FOUND, "message": "this client answers no requests"}


class _Refused(CallBroke):
    """The server's own error: it works, and does not do this."""


def _read_tool(tool: Any) -> Schema:
    """Raises CallBroke."""
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CallBroke(f"it lists a tool of the name {str(name)[:80]!r}")
    parameters = tool.get("inputSchema")
    if not isinstance(parameters, dict) or len(json.dumps(parameters)) > MAX_SCHEMA:
        raise CallBroke(f"its tool {name} has no schema of at most {MAX_SCHEMA} characters")
    description = tool.get("description")
    plain = {key: value for key, value in parameters.items() if key not in ("$schema", "title")}
    return make_schema(name, description[:MAX_DESCRIPTION] if isinstance(description, str) else "", plain)


@lru_cache(64)
def list_tools(key: str, server: Command | Address, timeout_s: float) -> tuple[Schema, ...]:
    """Its tools; the process, or the session, is ended again. Blocks.

    Raises BadInput, which names the `key` of the configuration.
    """

    async def ask() -> list[Schema]:
        async with asyncio.timeout(timeout_s):
            peer = await McpPeer.start(server)
            try:
                return await peer.list_tools()
            finally:
                await peer.transport.close()

    place = server.url if isinstance(server, Address) else shlex.join(server.words)
    try:
        with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
            return tuple(thread.submit(asyncio.run, ask()).result())
    except TimeoutError as error:
        raise BadInput(f"the MCP server does not answer within {timeout_s:g} s", key=key, found=place) from error
    except (OSError, CallBroke, ToolBusy) as error:
        cure = ""
        if "ModuleNotFoundError" in str(error):
            cure = "mcp: /path/venv/bin/python SERVER, where a package is missing from the run's own Python"
        raise BadInput(f"no MCP server: {error}", key=key, found=place, expected=cure) from error
