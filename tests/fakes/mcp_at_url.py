"""An MCP server at a URL, in the event loop that asks it: it does as `how` says, its tool `wrong` above all.

`echo` says its text, in the way of `how` if that is a way of answering: json, events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "wrong")]
EVENTS = {"Content-Type": "text/event-stream"}


def text(content: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}]}


class McpAtUrl:
    def __init__(self, how: str) -> None:
        self.how = how
        self.url = ""
        self.sessions: set[str] = set()
        self.greeted = 0
        self.headers: list[dict[str, str]] = []  # of each request
        self.answers: asyncio.Queue[Any] = asyncio.Queue()  # of the client, to what it was asked
        self.called, self.answered = asyncio.Event(), asyncio.Event()  # `wrong`, as far as it is

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append({"method": request.method, **request.headers})
        session = request.headers.get("Mcp-Session-Id", "")
        if request.method == "DELETE":
            self.sessions.discard(session)
            return web.Response()
        if self.how.isdigit():
            return self._refuse(request)
        message = await request.json()
        if message.get("method") == "initialize":
            return self._greet(message["id"])
        if session not in self.sessions:
            return web.Response(status=404)
        if "method" not in message:
            self.answers.put_nowait(message)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/list":
            return web.json_response({"id": message["id"], "result": {"tools": TOOLS}})
        arguments = message["params"]["arguments"]
        result = {"jsonrpc": "2.0", "id": message["id"], "result": text(arguments.get("text", ""))}
        if message["params"]["name"] == "wrong":
            self.called.set()
            return await self._go_wrong(request, result)
        return web.json_response(result)

    def _refuse(self, request: web.Request) -> web.Response:
        body = f"no\x1b {request.headers.get('Authorization')}"
        return web.Response(status=int(self.how), text=body, headers={"Location": self.url + "2", "Retry-After": "0"})

    def _greet(self, number: str) -> web.Response:
        self.greeted += 1
        session = "a session" if self.how == "bad session" else f"session-{self.greeted}"
        self.sessions.add(session)
        revision: Any = ["2025"] if self.how == "bad revision" else "2025-03-26"
        greeting = {"jsonrpc": "2.0", "id": number, "result": {"protocolVersion": revision, "capabilities": {}}}
        return web.json_response(greeting, headers={"Mcp-Session-Id": session})

    async def _go_wrong(self, request: web.Request, result: dict[str, Any]) -> web.StreamResponse:
        bodies = {
            "html": "<html>",
            "deep": "[" * 100_000,
            "batch": json.dumps([result]),
            "flood": json.dumps(result | {"result": text("x" * (5 << 20))}),
            "nothing": "",
            "other id": json.dumps(result | {"id": "another"}),
        }
        if self.how in bodies:
            return web.Response(text=bodies[self.how], content_type="application/json")
        if self.how == "squeezed":
            response = web.Response(text=json.dumps(result | {"result": text("x" * (5 << 20))}))
            response.enable_compression(web.ContentCoding.gzip)
            return response
        if self.how == "hang":
            await asyncio.sleep(1000)
        if self.how.startswith("answers "):
            return web.Response(status=int(self.how.split()[1]), text="no")
        stream = web.StreamResponse(headers=EVENTS)
        await stream.prepare(request)
        await self._stream(stream, result)
        return stream

    async def _stream(self, stream: web.StreamResponse, result: dict[str, Any]) -> None:
        if self.how == "event flood":
            while True:
                await stream.write(b": ping\n\n" * 8192)
        if self.how == "endless line":
            await stream.write(b"data: ")
            while True:
                await stream.write(b"x" * 65536)
        if self.how == "breaks off":
            await stream.write(b'data: {"id')
            raise ConnectionResetError
        if self.how in ("asks", "is silent"):
            for number, method in ((1, "ping"), (2, "sampling/createMessage")):
                await stream.write(f'data: {{"id": {number}, "method": "{method}"}}\n\n'.encode())
                result["result"] = text(f"{sorted(await self.answers.get())}, {result['result']['content'][0]['text']}")
        if self.how not in ("ends", "is silent"):
            lines = [f"data:{line}" for line in json.dumps(result, indent=1).splitlines()]
            event = "\r\n".join(["id: 7", "data: ", "", ": a comment", "event: message", *lines, "", ""]).encode()
            for at in range(0, len(event), 7):
                await stream.write(event[at : at + 7])
        self.answered.set()
        if self.how in ("goes on", "is silent"):
            await asyncio.sleep(1000)


@asynccontextmanager
async def mcp_at_url(how: str) -> AsyncIterator[McpAtUrl]:
    server, app = McpAtUrl(how), web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()
